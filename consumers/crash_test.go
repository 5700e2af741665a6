package consumers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

var errDead = errors.New("the process is dead")

// fate lets a worker die before its n-th call of store, queue or Gmail: nothing that it does afterwards has an effect. As a
// worker keeps nothing but what it stored, dying after a call is the same as dying before the next. It also keeps book of
// what was fetched, so that a fetch that was lost can be told from one that was repeated without need.
type fate struct {
	Store
	box *consumertest.Mailbox

	mu      sync.Mutex
	n, at   int // at 0: never
	dead    bool
	fetches int
	pending map[string]bool // fetched and not stored
	lost    int             // pending when the worker died
}

// mortal puts the world's next worker under a fate.
func (w *world) mortal(at int) *fate {
	f := &fate{Store: w.store, box: w.boxes[account(0)], at: at, pending: map[string]bool{}}
	w.store.Fail = func(string) error { return f.step() }
	w.step, w.port = f.step, f
	f.box.OnCall = func(op, id string) {
		if f.step() != nil {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if op == consumertest.OpGetThread || op == consumertest.OpGetMessage {
			f.fetches++
			f.pending[op+id] = true
		}
	}
	return f
}

func (f *fate) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.n == f.at {
		f.dead, f.lost = true, len(f.pending)
		f.box.Inject(consumertest.Fault{Err: errDead})
	}
	if f.dead {
		return errDead
	}
	return nil
}

func (f *fate) died() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// reborn ends the dying: the next worker lives on.
func (f *fate) reborn() {
	f.box.Heal()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = false
	clear(f.pending)
}

// end lets nobody die any more, and returns the book.
func (f *fate) end() (calls, fetches, lost int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = 0
	return f.n, f.fetches, f.lost
}

func (f *fate) stored(keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		delete(f.pending, k)
	}
}

func (f *fate) SaveThread(ctx context.Context, b Batch, t Thread, now time.Time) (bool, error) {
	complete, err := f.Store.SaveThread(ctx, b, t, now)
	if err == nil {
		f.stored(consumertest.OpGetThread + t.ID)
	}
	return complete, err
}

func (f *fate) ApplyHistory(ctx context.Context, id string, s HistoryStep, now time.Time) error {
	err := f.Store.ApplyHistory(ctx, id, s, now)
	if err != nil {
		return err
	}
	for _, t := range s.Threads {
		f.stored(consumertest.OpGetThread + t.ID)
	}
	for _, m := range s.Messages {
		f.stored(consumertest.OpGetMessage + m.ID)
	}
	return nil
}

// life is an import, changes that come by history, and a resync, in which the worker dies once. It returns how many calls
// and fetches that took.
func (w *world) life(at int) (calls, fetches, lost int) {
	f := w.mortal(at)
	box := w.boxes[account(0)]
	box.PageSize = 5
	fill(box, 11)
	w.start()
	w.survived(f)

	mail := box.Live()
	fill(box, 2)
	box.Add(Message{ThreadID: mail[0].ThreadID})
	box.Add(Message{ThreadID: mail[3].ThreadID})
	box.Add(Message{ThreadID: mail[3].ThreadID})
	box.Relabel(mail[5].ID, []string{"TRASH"}, []string{"INBOX"})
	box.Delete(mail[6].ID)
	box.Delete(box.Add(Message{}).ID)
	w.push(account(0))
	w.survived(f)

	fill(box, 2)
	box.Relabel(mail[1].ID, []string{"STARRED"}, nil)
	box.Delete(mail[2].ID)
	box.Delete(mail[len(mail)-1].ID)
	box.ExpireHistory()
	w.push(account(0))
	w.survived(f)
	calls, fetches, lost = f.end()
	w.settled()
	return calls, fetches, lost
}

// survived waits until all is stored, with a new worker where one died.
func (w *world) survived(f *fate) {
	w.t.Helper()
	for range 1000 {
		pass(10 * time.Second)
		if f.died() {
			w.queue.close()
			w.stop()
			f.reborn()
			w.start()
		} else if w.quiet() {
			return
		}
	}
	w.t.Fatal("the mirror never came up to date")
}

// relaticle/relaticle#640, rustmailer/bichon#299, kenn-io/msgvault#260: the process dies between any two steps, and its
// queue with it. Nothing is lost, and nothing is fetched again that was stored.
func TestDeathAtAnyStepLosesNothingAndRepeatsNothing(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable queue ", durable), func(t *testing.T) {
			t.Parallel()
			var steps, clean int
			inWorld(t, 1, func(w *world) { w.durable = durable; steps, clean, _ = w.life(0) })
			for at := 1; at <= steps && !t.Failed(); at++ {
				inWorld(t, 1, func(w *world) {
					w.durable = durable
					_, fetches, lost := w.life(at)
					if fetches > clean+lost {
						t.Errorf("died at step %d of %d: %d fetches, want at most %d and the %d in flight", at, steps, fetches, clean, lost)
					}
				})
			}
		})
	}
}
