package consumers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Delivery is a job with the lease of the message that carried it. Exactly one of Ack and Nack is called, once, from any
// goroutine; until then the message stays leased.
type Delivery struct {
	Job  Job
	Ack  func()
	Nack func()
}

// RunnerConfig sizes a Runner.
type RunnerConfig struct {
	Kind        Kind          // of its jobs; for logs
	Workers     int           // slots: jobs worked at once
	MaxPark     time.Duration // a longer wait goes to the database
	MaxParked   int           // jobs that wait in the process at once
	SweepAfter  time.Duration // a job being worked is not published again before this; more than MaxPark
	MaxAttempts int           // failures of a job that no later try mends, before it becomes a dead letter; 0 is 8
	Grace       time.Duration // Stop: for handlers to finish before their context is canceled; 0 is 10 s
}

const (
	defaultGrace       = 10 * time.Second
	defaultMaxAttempts = 8
	// storeTimeout bounds the runner's own store calls: they must end while the process stops.
	storeTimeout = 10 * time.Second
	// minPark keeps a denial that quotes no wait from turning into a hot loop.
	minPark = 20 * time.Millisecond
)

// Runner hands the jobs of one kind to a Handler and does what the outcome says.
//
// Accounts take turns at the slots, and one account has at most half of them (rounded up), so its jobs never keep
// another's from being worked. It holds at most a quarter of MaxParked of one account's jobs; what comes beyond goes to
// the database. Jobs of one key are never worked at once: one that arrives while another of its key waits is folded into
// it and acknowledged, which loses nothing as the kept one stays leased; one that arrives while its key is worked runs once
// afterwards.
//
// All methods are safe for concurrent use.
type Runner struct {
	cfg     RunnerConfig
	handler Handler
	store   Store
	log     *zap.Logger

	ctx    context.Context // of the handlers
	cancel context.CancelFunc
	done   chan struct{} // all workers have ended

	mu       sync.Mutex
	ready    *sync.Cond
	board    *board
	alarm    *time.Timer // for the parked job that is due first
	attempts map[string]attempt
	counts   Stats
	started  bool
	stopping bool
}

// attempt counts Retry outcomes in a row. It outlives the entry, which is gone while a long wait is in the database.
type attempt struct {
	n       int
	poisons int // of these, see poison
	at      time.Time
}

// NewRunner returns a runner that takes deliveries at once and works on them after Start.
func NewRunner(cfg RunnerConfig, h Handler, store Store, log *zap.Logger) (*Runner, error) {
	if cfg.Workers < 1 || cfg.MaxParked < 1 || cfg.MaxPark <= 0 || cfg.SweepAfter <= cfg.MaxPark {
		return nil, fmt.Errorf("%s: workers %d, maxParked %d, maxPark %s, sweepAfter %s: want all above 0 and sweepAfter above maxPark",
			cfg.Kind, cfg.Workers, cfg.MaxParked, cfg.MaxPark, cfg.SweepAfter)
	}
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = defaultMaxAttempts
	}
	r := &Runner{
		cfg: cfg, handler: h, store: store, log: log.With(zap.String("consumer", string(cfg.Kind))),
		done: make(chan struct{}), board: newBoard((cfg.Workers + 1) / 2), attempts: map[string]attempt{},
	}
	r.ready = sync.NewCond(&r.mu)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Start starts the workers. It returns when they are up; a second call does nothing.
func (r *Runner) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.stopping {
		return
	}
	r.started = true
	var wg sync.WaitGroup
	for range r.cfg.Workers {
		wg.Go(r.work)
	}
	go func() {
		wg.Wait()
		close(r.done)
	}()
}

// Receive is Deliver for a message as the queue carries it. Data that is no job is dropped with a log line: no account
// can be told from it, and the work that it may have hinted at is in the database.
func (r *Runner) Receive(data []byte, ack, nack func()) {
	j, err := DecodeJob(data)
	if err == nil && j.Kind != r.cfg.Kind {
		err = fmt.Errorf("job: kind %q in this queue", j.Kind)
	}
	if err != nil {
		r.log.Error("message dropped", zap.Error(err), zap.Int("bytes", len(data)))
		r.count(func(s *Stats) { s.Undecodable++ })
		ack()
		return
	}
	r.Deliver(Delivery{Job: j, Ack: ack, Nack: nack})
}

// Deliver takes a job in and returns at once, except that it writes to the store when the account has too many jobs
// waiting here already. After Stop it gives the job back.
func (r *Runner) Deliver(d Delivery) {
	r.mu.Lock()
	if r.stopping {
		r.mu.Unlock()
		d.Nack()
		return
	}
	found, folded := r.board.fold(d)
	full := !found && r.board.held(d.Job.Account) >= max(1, r.cfg.MaxParked/4)
	if !found && !full {
		r.board.add(d, time.Now())
		r.ready.Signal()
	}
	if folded {
		r.counts.Folded++
	}
	r.mu.Unlock()
	switch {
	case folded:
		d.Ack()
	case full:
		r.giveBack([]Delivery{d}, r.postpone(d.Job, r.cfg.MaxPark))
	}
}

// work is one slot.
func (r *Runner) work() {
	for {
		e, j := r.take()
		if e == nil {
			return
		}
		r.settle(e, j, r.handle(e.turn, j))
	}
}

func (r *Runner) take() (*entry, Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.stopping {
			return nil, Job{}
		}
		if e := r.board.take(); e != nil {
			r.counts.Handled++
			return e, e.job
		}
		r.ready.Wait()
	}
}

// handle notes first that the job is in hand, so that the sweeper does not publish it meanwhile.
func (r *Runner) handle(turn *gmailquota.Turn, j Job) (out Outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = Retry(Caught(r.log, j.Account, p))
		}
	}()
	err := r.store.Postpone(r.ctx, j, time.Now().Add(r.cfg.SweepAfter))
	if Removed(err) {
		return Done()
	}
	if err != nil {
		return Retry(fmt.Errorf("note the job as taken: %w", err))
	}
	ctx := WithPlace(gmailquota.WithTurn(r.ctx, turn))
	defer LetGo(ctx)
	return r.handler.Handle(ctx, j)
}

// Stop ends the intake, gives back what is not being worked, lets the handlers finish for the grace period or until ctx
// ends, then cancels theirs and waits as long again. It fails if handlers are still running then. It may be called twice.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	var back []Delivery
	if !r.stopping {
		r.stopping = true
		back = r.board.drain()
		if r.alarm != nil {
			r.alarm.Stop()
		}
		if !r.started {
			close(r.done)
		}
		r.ready.Broadcast()
	}
	r.mu.Unlock()
	r.giveBack(back, errStopping)

	if r.ended(ctx.Done()) {
		r.cancel()
		return nil
	}
	r.cancel()
	if r.ended(nil) {
		return nil
	}
	return fmt.Errorf("%s: handlers still run %s after they were canceled", r.cfg.Kind, r.cfg.Grace)
}

// ended waits for the workers for one grace period, or until enough.
func (r *Runner) ended(enough <-chan struct{}) bool {
	grace := time.NewTimer(r.cfg.Grace)
	defer grace.Stop()
	select {
	case <-r.done:
		return true
	case <-enough:
	case <-grace.C:
	}
	return false
}
