package consumers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	. "github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/consumers/history"
	"github.com/gmailsync/gmailsync/consumers/initialsync"
	"github.com/gmailsync/gmailsync/consumers/threadbatch"
)

const (
	pollInterval = 5 * time.Minute
	sweepAfter   = 5 * time.Minute
)

// world is a whole worker over a store, a queue and mailboxes in memory, in virtual time.
type world struct {
	t       *testing.T
	store   *consumertest.Store
	boxes   consumertest.Mailboxes
	killed  atomic.Bool
	port    Store        // what the worker sees of store
	step    func() error // if set, asked before the queue takes something
	durable bool         // the queue does not count as empty when a worker starts
	guarded Mailboxes    // if set, what the worker sees of boxes
	applied func(account string, cursor HistoryID)
	queue   *lossyQueue
	runners map[Kind]*Runner
	sweeper *Sweeper
}

// inWorld runs test on a world with one worker started, and stops it afterwards.
func inWorld(t *testing.T, accounts int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: consumertest.NewStore(), boxes: consumertest.Mailboxes{}}
		w.store.Fail = func(string) error {
			if w.killed.Load() {
				return errors.New("the process is dead")
			}
			return nil
		}
		for i := range accounts {
			id := account(i)
			w.boxes[id] = consumertest.NewMailbox(id + "@example.com")
			w.store.AddAccount(id, id+"@example.com")
		}
		w.port = w.store
		test(w)
		w.stop()
	})
}

func account(i int) string { return fmt.Sprintf("account-%d", i) }

// start starts a worker whose queue is empty, as one in the process is.
func (w *world) start() {
	w.t.Helper()
	w.queue = &lossyQueue{random: rand.New(rand.NewPCG(7, 7)), step: w.step}
	mailboxes := w.guarded
	if mailboxes == nil {
		mailboxes = w.boxes
	}
	base := Base{Mailboxes: mailboxes, Store: w.port, Queue: w.queue, Log: zap.NewNop(), SweepAfter: sweepAfter}
	handlers := map[Kind]Handler{
		InitialSync: initialsync.New(base, initialsync.Config{BatchSize: 5, Window: 2}),
		ThreadBatch: threadbatch.New(base, threadbatch.Config{Window: 2, MaxAttempts: 8}),
		History:     history.New(base, history.Config{PollInterval: pollInterval, MaxAttempts: 8, OnApplied: w.applied}),
	}
	w.runners = map[Kind]*Runner{}
	for kind, h := range handlers {
		r, err := NewRunner(RunnerConfig{Kind: kind, Workers: 5, MaxPark: time.Minute, MaxParked: 100, SweepAfter: sweepAfter}, h, w.port, zap.NewNop())
		if err != nil {
			w.t.Fatal(err)
		}
		w.runners[kind] = r
		r.Start()
	}
	w.queue.runners = w.runners
	w.sweeper = NewSweeper(base, !w.durable)
	if err := w.sweeper.Start(w.t.Context()); err != nil && !errors.Is(err, errDead) {
		w.t.Fatal(err)
	}
}

func (w *world) stop() {
	w.t.Helper()
	if w.sweeper == nil {
		return
	}
	w.queue.close()
	w.sweeper.Stop()
	for _, r := range w.runners {
		if err := r.Stop(w.t.Context()); err != nil {
			w.t.Error(err)
		}
	}
	w.sweeper = nil
}

// kill ends the worker without a chance to store or publish anything, and loses its queue.
func (w *world) kill() {
	w.killed.Store(true)
	w.queue.close()
	w.stop()
	w.killed.Store(false)
}

// push delivers a notification, as Gmail does after a change.
func (w *world) push(id string) {
	_ = w.queue.Publish(context.Background(), Job{Kind: History, Account: id, At: time.Now()})
}

// settled waits until nothing is left to do, and checks that each mirror is its mailbox.
func (w *world) settled() {
	w.t.Helper()
	w.queue.calm()
	for range 1000 {
		pass(10 * time.Second)
		if w.quiet() {
			break
		}
	}
	for id, box := range w.boxes {
		if d := cmp.Diff(box.Live(), w.store.Live(id), cmpopts.EquateEmpty()); d != "" {
			w.t.Errorf("%s: mirror and mailbox differ (-mailbox +mirror):\n%s", id, d)
		}
		a := w.account(id)
		expect(w.t, "state", a.State, Live)
		expect(w.t, "cursor", a.Cursor, box.HistoryID())
		expect(w.t, "dead letters", len(w.store.DeadLetters(id)), 0)
	}
}

func (w *world) quiet() bool {
	for id, box := range w.boxes {
		a := w.account(id)
		if a.State != Live || a.Cursor != box.HistoryID() || len(w.store.Fetches(id)) > 0 {
			return false
		}
	}
	return true
}

func (w *world) account(id string) Account {
	w.t.Helper()
	a, err := w.store.Account(context.Background(), id)
	if err != nil && !errors.Is(err, errDead) {
		w.t.Fatal(err)
	}
	return a
}

// lossyQueue delivers to the runners. It loses, doubles and delays what it is told to.
type lossyQueue struct {
	runners map[Kind]*Runner
	step    func() error

	mu      sync.Mutex
	random  *rand.Rand
	lose    float64 // share of jobs that are lost
	double  float64 // share that comes twice
	delay   time.Duration
	closed  bool
	pending []*time.Timer
}

func (q *lossyQueue) Publish(_ context.Context, jobs ...Job) error {
	if q.step != nil {
		if err := q.step(); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errors.New("the queue is closed")
	}
	for _, j := range jobs {
		copies := 1
		if q.random.Float64() < q.lose {
			copies = 0
		} else if q.random.Float64() < q.double {
			copies = 2
		}
		for range copies {
			q.later(j, time.Duration(q.random.Int64N(int64(q.delay)+1)))
		}
	}
	return nil
}

// later delivers a job; a nack brings it back after a second.
func (q *lossyQueue) later(j Job, d time.Duration) {
	if q.closed {
		return
	}
	q.pending = append(q.pending, time.AfterFunc(d, func() {
		q.runners[j.Kind].Deliver(Delivery{Job: j, Ack: func() {}, Nack: func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.later(j, time.Second)
		}})
	}))
}

func (q *lossyQueue) trouble(lose, double float64, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose, q.double, q.delay = lose, double, delay
}

func (q *lossyQueue) calm() { q.trouble(0, 0, 0) }

func (q *lossyQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, t := range q.pending {
		t.Stop()
	}
}
