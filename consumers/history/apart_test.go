package history

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// pickyStore fails to store what holds one message.
type pickyStore struct {
	consumers.Store
	poison string
	fail   func() error
}

func (s *pickyStore) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	is := func(m consumers.Message) bool { return m.ID == s.poison }
	in := slices.ContainsFunc(step.Messages, is)
	for _, t := range step.Threads {
		in = in || slices.ContainsFunc(t.Messages, is)
	}
	if in {
		return s.fail()
	}
	return s.Store.ApplyHistory(ctx, account, step, now)
}

// One message that cannot be stored kept the cursor of its mailbox where it was, for ever.
func TestMessageThatCannotBeStoredFailsAlone(t *testing.T) {
	for what, fail := range map[string]func() error{
		"a panic":  func() error { panic("a piece of mail") },
		"an error": func() error { return errors.New("string or blob too big") },
	} {
		for _, replies := range []int{0, 1} { // fetched alone, and with its thread
			t.Run(what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.mirror(consumers.RunImport, true)
					mail := f.add(5)
					for range replies {
						f.reply(mail[2])
					}
					f.handler.Store = &pickyStore{Store: f.store, poison: mail[2].ID, fail: fail}
					f.done(f.handle())
					expect(t, "stored at once", len(f.store.Live(account)), 4)
					expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
					f.settle()
					expect(t, "dead letters", len(f.store.DeadLetters(account)) > 0, true)
					expect(t, "tries", f.box.Calls(consumertest.OpGetMessage, mail[2].ID)+f.box.Calls(consumertest.OpGetThread, mail[2].ThreadID) <= 4*(1+replies), true)

					// A newer version of the program can store it: the letters are replayed.
					f.handler.Store = f.store
					var ids []int64
					for _, d := range f.store.DeadLetters(account) {
						ids = append(ids, d.ID)
					}
					n, err := f.store.ReplayDeadLetters(t.Context(), account, ids, 25, time.Now())
					f.must(err)
					expect(t, "replayed", n, len(ids))
					f.settle()
					f.equal()
					expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
				})
			})
		}
	}
}
