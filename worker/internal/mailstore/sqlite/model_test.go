package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/consumers/modeltest"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// The model's sequences over the real store: what the memory does, SQLite does too.
func TestMirrorIsTheMailboxAfterAnySequence(t *testing.T) {
	// The first use of the encoder makes its channels, which must not belong to a bubble.
	if _, err := mailstore.Decompress(mailstore.Compress([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	modeltest.Check(t, 40, func(t *testing.T) (consumertest.Fixture, func()) {
		s, err := Open(context.Background(), filepath.Join(t.TempDir(), "mirror.db"))
		if err != nil {
			t.Fatal(err)
		}
		return fixtureOf(s), func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func fixtureOf(s *Store) consumertest.Fixture {
	return consumertest.Fixture{
		Store: s,
		AddAccount: func(ctx context.Context, id, address string) error {
			return s.AddAccount(ctx, consumers.Account{ID: id, Address: address}, consumers.Sealed{})
		},
		Live: s.live, Labels: s.Labels, DeadLetters: s.DeadLetters,
	}
}
