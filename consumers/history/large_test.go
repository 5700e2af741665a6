package history

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// missedLarge is a fixture whose import is over and has not seen a thread of n messages, which is too large to be fetched
// whole. History names only the last one, or with gone a reply that is deleted again.
func missedLarge(t *testing.T, n int, gone bool) (f *fixture, first consumers.Message) {
	f = newFixture(t)
	first = f.add(1)[0]
	for range n - 2 {
		f.reply(first)
	}
	if gone {
		f.reply(first)
	}
	run, _, err := f.store.StartRun(t.Context(), account, consumers.RunImport, time.Now())
	f.must(err)
	f.must(f.store.PinBaseline(t.Context(), run.ID, f.box.HistoryID()))
	last := f.reply(first)
	if gone {
		f.box.Delete(last.ID)
	}
	f.must(f.store.AddPage(t.Context(), run.ID, "", consumers.ThreadPage{}, 25))
	if done, err := f.store.FinishRun(t.Context(), run.ID, time.Now()); err != nil || !done {
		t.Fatal("the run is not finished", err)
	}
	f.box.LargeThread = n
	return f, first
}

// onyx-dot-app/onyx#5948: the older messages of a large thread that is not stored whole are named by no record. They come
// in slices, none twice, and then the thread is complete.
func TestOlderMessagesOfALargeThreadAreFetched(t *testing.T) {
	for name, gone := range map[string]bool{"named by a reply": false, "passed by a reply that is deleted again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 60
				f, first := missedLarge(t, n, gone)
				f.settle()
				f.equal()
				expect(t, "stored", len(f.store.Live(account)), n)
				expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), n)
				expect(t, "threads.get", f.box.Calls(consumertest.OpGetThread), 1)
				states, err := f.store.Threads(t.Context(), account, []string{first.ThreadID})
				f.must(err)
				expect(t, "complete", states[first.ThreadID].Complete, true)
			})
		})
	}
}

// The first try may fail before the thread is known to be large: the retry lists its messages all the same.
func TestOlderMessagesOfALargeThreadAreFetchedAfterAFailure(t *testing.T) {
	for _, op := range []string{consumertest.OpGetThread, consumertest.OpThreadOutline} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := missedLarge(t, 5, false)
				f.box.Inject(consumertest.Fault{Op: op, Times: 1, Err: errPassing})
				f.settle()
				f.equal()
			})
		})
	}
}

// The page that deletes a large thread's first message names none of its others.
func TestOlderMessagesOfALargeThreadWithoutItsFirstAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		f, first := missedLarge(t, n, true)
		f.box.Delete(first.ID)
		f.box.LargeThread = n - 1
		f.settle()
		f.equal()
		expect(t, "stored", len(f.store.Live(account)), n-1)
	})
}

// Bad messages of a large thread end as dead letters after bounded tries: none begins the others' anew.
func TestBadMessagesOfALargeThreadEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 8
		f, first := missedLarge(t, n, false)
		all, err := f.box.ThreadOutline(t.Context(), first.ThreadID)
		f.must(err)
		for _, i := range []int{2, 4, n - 1} {
			f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: all.Messages[i].ID, Times: 100, Err: errPassing})
		}
		f.settle()
		expect(t, "stored", len(f.store.Live(account)), n-3)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 3)
		expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), n-3+3*f.handler.cfg.MaxAttempts)
	})
}
