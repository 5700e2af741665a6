package consumers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// sweepEvery is how late a wait that stands in the database may end.
	sweepEvery = time.Second
	// sweepLimit is how many jobs one transaction claims.
	sweepLimit = 500
)

// Sweeper publishes the work that the database says is open and due but nobody holds: never published, lost, or its wait
// is over.
type Sweeper struct {
	base   Base
	alone  bool
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
}

// NewSweeper returns a sweeper over b's store and queue. alone says that no other process works on the store, so that nobody
// holds any of its work when this one starts: all of it is due at once. Else the work of a killed process would wait until its
// leases in the queue lapse, or for SweepAfter.
func NewSweeper(b Base, alone bool) *Sweeper {
	return &Sweeper{base: b, alone: alone, done: make(chan struct{})}
}

// Start starts sweeping, at once and then every second, until Stop. It is called once; ctx bounds only the start.
func (s *Sweeper) Start(ctx context.Context) error {
	if s.alone {
		if err := s.base.Store.ReleaseAll(ctx); err != nil {
			return fmt.Errorf("sweeper: release the work that the last process held: %w", err)
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	go s.loop(run)
	return nil
}

// Stop ends the sweeping and waits for the sweep under way. It may be called twice, not before Start has returned.
func (s *Sweeper) Stop() {
	s.once.Do(func() {
		if s.cancel != nil {
			s.cancel()
			<-s.done
		}
	})
}

func (s *Sweeper) loop(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.base.Log.Warn("sweep failed", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep publishes everything that is due now.
func (s *Sweeper) sweep(ctx context.Context) error {
	for {
		now := time.Now()
		jobs, err := s.base.Store.DueJobs(ctx, now, now.Add(s.base.SweepAfter), sweepLimit)
		if err != nil {
			return err
		}
		if err := s.base.Publish(ctx, jobs...); err != nil {
			return err
		}
		if len(jobs) < sweepLimit {
			return nil
		}
	}
}
