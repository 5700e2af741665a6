package consumers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	. "github.com/gmailsync/gmailsync/consumers"
)

func TestStopGivesWaitingJobsBackAtOnceAndLetsWorkEnd(t *testing.T) {
	cfg := testConfig
	cfg.Workers = 2 // of which one account has one
	handle := func(_ context.Context, j Job) Outcome {
		if j.Account == "parked" {
			return RequeueAfter(30*time.Second, errDenied)
		}
		time.Sleep(2 * time.Second)
		return Done()
	}
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		b.deliver("parked", batchJob("parked", 1))
		synctest.Wait()
		b.deliver("worked", batchJob("ann", 1))
		b.deliver("ready", batchJob("ann", 2))
		synctest.Wait()
		b.deliver("next", batchJob("ann", 1))
		var wg sync.WaitGroup
		start := time.Now()
		for range 2 {
			wg.Go(func() {
				if err := b.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for _, m := range []string{"parked", "ready", "next"} {
			expect(t, "nacks of "+m, b.mail.nacked(m), 1)
		}
		b.deliver("late", batchJob("ann", 3))
		expect(t, "nacks of a late one", b.mail.nacked("late"), 1)
		wg.Wait()
		expect(t, "time to stop", time.Since(start), 2*time.Second)
		expect(t, "acks of what was worked", b.mail.acked("worked"), 1)
		b.Start()
	})
}

func TestStopCancelsWorkAfterTheGracePeriod(t *testing.T) {
	handle := func(ctx context.Context, _ Job) Outcome {
		<-ctx.Done()
		return RequeueAfter(0, ctx.Err())
	}
	for what, c := range map[string]struct{ patience, want time.Duration }{
		"grace":         {time.Hour, 5 * time.Second},
		"caller's time": {time.Second, time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			onBench(t, testConfig, handle, func(t *testing.T, b bench) {
				b.deliver("m", batchJob("ann", 1))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				start := time.Now()
				if err := b.Stop(ctx); err != nil {
					t.Error(err)
				}
				expect(t, "time to stop", time.Since(start), c.want)
				expect(t, "nacks", b.mail.nacked("m"), 1)
			})
		})
	}
}

func TestStopReportsAHandlerThatDoesNotEnd(t *testing.T) {
	release := make(chan struct{})
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		r, err := NewRunner(testConfig, handlerFunc(func(context.Context, Job) Outcome { <-release; return Done() }), newWaitStore(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		r.Start()
		m := newMail()
		r.Deliver(m.delivery("m", batchJob("ann", 1)))
		synctest.Wait()
		if err := r.Stop(t.Context()); err == nil {
			t.Error("no error")
		}
		close(release)
		synctest.Wait()
		expect(t, "acks of work that ended late", m.acked("m"), 1)
	})
}

func TestLongWaitIsStoredWhileStopping(t *testing.T) {
	handle := func(ctx context.Context, _ Job) Outcome {
		<-ctx.Done()
		return RequeueAfter(time.Hour, errDenied)
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.deliver("m", batchJob("ann", 1))
		synctest.Wait()
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		expect(t, "acks", b.mail.acked("m"), 1)
		expect(t, "rest of the wait", time.Until(b.store.lastDue(batchJob("ann", 1))), time.Hour)
	})
}

func TestStopWithoutStart(t *testing.T) {
	r, err := NewRunner(testConfig, handlerFunc(nil), newWaitStore(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	m := newMail()
	r.Deliver(m.delivery("m", batchJob("ann", 1)))
	for range 2 {
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	expect(t, "nacks", m.nacked("m"), 1)
}

const sweepPeriod = time.Second

// queue keeps what was published; while it is away it refuses.
type queue struct {
	mu   sync.Mutex
	away bool
	jobs []Job
}

func (q *queue) Publish(_ context.Context, jobs ...Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away {
		return errors.New("the queue is away")
	}
	q.jobs = append(q.jobs, jobs...)
	return nil
}

func (q *queue) setAway(away bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = away
}

func (q *queue) published() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

func TestSweeperPublishesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := newWaitStore(), &queue{}
		store.setDue(historyJob("ann"))
		s := NewSweeper(Base{Store: store, Queue: q, Log: zap.NewNop(), SweepAfter: time.Minute}, true)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		expect(t, "released at the start", store.released, 1)
		expect(t, "published at once", q.published(), 1)

		q.setAway(true)
		lost := historyJob("bob")
		store.setDue(lost)
		pass(sweepPeriod)
		expect(t, "published while the queue is away", q.published(), 1)
		expect(t, "tried again after", time.Until(store.lastDue(lost)), 10*time.Second)

		q.setAway(false)
		store.setDue(lost)
		pass(sweepPeriod)
		expect(t, "published", q.published(), 2)
		s.Stop()
		s.Stop()
	})
}
