package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore opens a store in a new file, closed with the test.
func openStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(context.Background(), filepath.Join(t.TempDir(), "mirror.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Store) live(ctx context.Context, account string) ([]consumers.Message, error) {
	var list []consumers.Message
	err := s.EachMessage(ctx, account, func(m consumers.Message) error {
		list = append(list, m)
		return nil
	})
	return list, err
}

func TestStoreKeepsTheContract(t *testing.T) {
	consumertest.StoreSuite(t, func(t *testing.T) consumertest.Fixture {
		return fixtureOf(openStore(t))
	})
}

func TestTheFileIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mirror.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", suffix, info.Mode(), err)
		}
	}
}
