package modeltest

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inMemory(*testing.T) (consumertest.Fixture, func()) {
	s := consumertest.NewStore()
	return consumertest.Fixture{
		Store:       s,
		AddAccount:  func(_ context.Context, id, address string) error { s.AddAccount(id, address); return nil },
		Live:        func(_ context.Context, id string) ([]consumers.Message, error) { return s.Live(id), nil },
		Labels:      func(_ context.Context, id string) ([]consumers.Label, error) { return s.Labels(id), nil },
		DeadLetters: func(_ context.Context, id string) ([]consumers.DeadLetter, error) { return s.DeadLetters(id), nil },
	}, func() {}
}

// Whatever happens to mailboxes and workers, in the end each mirror is its mailbox.
func TestMirrorIsTheMailboxAfterAnySequence(t *testing.T) { Check(t, 500, inMemory) }
