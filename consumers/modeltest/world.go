package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/consumers/history"
	"github.com/gmailsync/gmailsync/consumers/initialsync"
	"github.com/gmailsync/gmailsync/consumers/threadbatch"
)

const (
	pollInterval = time.Minute
	sweepAfter   = time.Minute
	maxPark      = 20 * time.Second
	// maxAttempts is as few as a thread cannot fail by chance: about one in a million, with ten percent of faults.
	maxAttempts = 6
)

// world is a sequence under way: mailboxes, the store under test, and workers over them.
type world struct {
	Sequence
	ctx     context.Context
	fixture consumertest.Fixture
	plant   Plant
	ids     []string
	boxes   consumertest.Mailboxes
	weather *weather
	book    *book
	queue   *queue
	workers []*worker
	most    int // workers at once
	expired int // events that made history too old, or began a resync
}

// worker is one worker process.
type worker struct {
	p       *process
	runners map[consumers.Kind]*consumers.Runner
	sweeper *consumers.Sweeper
}

func newWorld(t *testing.T, fixture consumertest.Fixture, plant Plant, s Sequence) (*world, error) {
	w := &world{
		Sequence: s, ctx: t.Context(), fixture: fixture, plant: plant, boxes: consumertest.Mailboxes{}, book: newBook(),
		weather: &weather{seed: s.Seed, gmail: s.Gmail, store: s.Store, asked: map[string]uint64{}},
	}
	w.queue = newQueue(w.weather, s.Embedded)
	for i, n := range s.Threads {
		id := fmt.Sprintf("account-%d", i)
		box := consumertest.NewMailbox(id + "@example.com")
		box.PageSize, box.OldThreadIDs = s.Page, s.OldIDs
		for k := range n {
			m := box.Add(consumers.Message{})
			for range k % 3 {
				box.Add(consumers.Message{ThreadID: m.ThreadID})
			}
		}
		w.ids, w.boxes[id] = append(w.ids, id), box
		if err := fixture.AddAccount(w.ctx, id, id+"@example.com"); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// start starts a worker. Where the queue lives in the process, all open work is due then.
func (w *world) start() error {
	p := &process{weather: w.weather, book: w.book, saw: map[string]bool{}}
	var port consumers.Store = store{w.fixture.Store, p}
	if w.plant.Store != nil {
		port = w.plant.Store(port)
	}
	var boxes consumers.Mailboxes = mailboxes{w.boxes, p}
	if w.plant.Mailboxes != nil {
		boxes = w.plant.Mailboxes(boxes)
	}
	base := consumers.Base{
		Mailboxes: boxes, Store: port, Queue: publisher{w.queue, p}, Log: zap.NewNop(), SweepAfter: sweepAfter,
	}
	handlers := map[consumers.Kind]consumers.Handler{
		consumers.InitialSync: initialsync.New(base, initialsync.Config{BatchSize: 3, Window: 2}),
		consumers.ThreadBatch: threadbatch.New(base, threadbatch.Config{Window: 2, MaxAttempts: maxAttempts}),
		consumers.History:     history.New(base, history.Config{PollInterval: pollInterval, MaxAttempts: maxAttempts}),
	}
	wk := &worker{p: p, runners: map[consumers.Kind]*consumers.Runner{}}
	for kind, h := range handlers {
		cfg := consumers.RunnerConfig{Kind: kind, Workers: 2, MaxPark: maxPark, MaxParked: 20, SweepAfter: sweepAfter}
		r, err := consumers.NewRunner(cfg, h, port, zap.NewNop())
		if err != nil {
			return err
		}
		wk.runners[kind] = r
		r.Start()
	}
	wk.sweeper = consumers.NewSweeper(base, false)
	if w.Embedded {
		if err := w.fixture.Store.ReleaseAll(w.ctx); err != nil {
			return err
		}
	}
	if err := wk.sweeper.Start(w.ctx); err != nil {
		return err
	}
	w.queue.join(wk)
	w.workers = append(w.workers, wk)
	w.most = max(w.most, len(w.workers))
	return nil
}

// stop ends a worker, in order or after its death.
func (w *world) stop(wk *worker) error {
	w.workers = slices.DeleteFunc(w.workers, func(o *worker) bool { return o == wk })
	wk.sweeper.Stop()
	for _, kind := range consumers.Kinds {
		if err := wk.runners[kind].Stop(w.ctx); err != nil {
			return err
		}
	}
	w.queue.leave(wk)
	return nil
}

// bury replaces the workers that died.
func (w *world) bury() error {
	for _, wk := range slices.Clone(w.workers) {
		if !wk.p.died() {
			continue
		}
		if err := w.stop(wk); err != nil {
			return err
		}
		if err := w.start(); err != nil {
			return err
		}
	}
	return nil
}

// pass lets d go by.
func (w *world) pass(d time.Duration) error {
	if err := sleep(w.ctx, d); err != nil {
		return err
	}
	synctest.Wait()
	return w.bury()
}

// run lets the sequence happen, the weather clear up, and everything come to rest, which it tells; then the mirrors must be
// right.
func (w *world) run(rested func(*world)) error {
	if err := w.start(); err != nil {
		return err
	}
	defer w.end()
	w.workers[0].p.dieIn(w.DieAt)
	if w.Second {
		if err := w.start(); err != nil {
			return err
		}
	}
	for i, e := range w.Events {
		if err := w.happen(e); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, e.What, err)
		}
		if err := w.pass(e.Then); err != nil {
			return err
		}
	}
	w.weather.set(func(w *weather) { w.calm = true })
	w.queue.trouble(0, 0, 0)
	for _, wk := range w.workers {
		if w.DieAt == 0 {
			wk.p.dieIn(0)
		}
	}
	for id, box := range w.boxes {
		box.Heal()
		if err := w.reconnect(id); err != nil {
			return err
		}
	}
	return w.settle(rested)
}

func (w *world) end() {
	w.queue.close()
	for _, wk := range slices.Clone(w.workers) {
		wk.p.dieIn(1)
		_ = w.stop(wk)
	}
}

// settle waits until nothing is left to do, and a while longer, and holds the end against the model.
func (w *world) settle(rested func(*world)) error {
	var left error
	for range 200 {
		if err := w.pass(10 * time.Second); err != nil {
			return err
		}
		if left = w.unfinished(); left == nil {
			break
		}
	}
	if left != nil {
		return fmt.Errorf("never came to rest: %w", left)
	}
	rested(w)
	if err := w.pass(2 * sweepAfter); err != nil {
		return err
	}
	return errors.Join(w.unfinished(), w.queue.pending(), w.compare(), w.book.check(w.most, w.changes))
}

// changes counts what happened to a thread.
func (w *world) changes(account, thread string) int { return w.boxes[account].Changes(thread) }
