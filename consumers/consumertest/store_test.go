package consumertest

import (
	"context"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
)

func TestStoreInMemoryKeepsTheContract(t *testing.T) {
	StoreSuite(t, func(*testing.T) Fixture {
		s := NewStore()
		return Fixture{
			Store:      s,
			AddAccount: func(_ context.Context, id, address string) error { s.AddAccount(id, address); return nil },
			Live:       func(_ context.Context, id string) ([]consumers.Message, error) { return s.Live(id), nil },
			Labels:     func(_ context.Context, id string) ([]consumers.Label, error) { return s.Labels(id), nil },
			DeadLetters: func(_ context.Context, id string) ([]consumers.DeadLetter, error) {
				return s.DeadLetters(id), nil
			},
		}
	})
}
