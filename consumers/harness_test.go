package consumers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	. "github.com/gmailsync/gmailsync/consumers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handlerFunc makes a Handler of a function.
type handlerFunc func(ctx context.Context, j Job) Outcome

func (f handlerFunc) Handle(ctx context.Context, j Job) Outcome { return f(ctx, j) }

// waitStore is the part of the Store that the runner and the sweeper use.
type waitStore struct {
	Store // nil: any other call is a bug

	mu          sync.Mutex
	postponed   map[string][]time.Time // by key: the due times, in order
	dead        []DeadLetter
	due         []Job
	released    int
	postponeErr error
	deadErr     error
}

func newWaitStore() *waitStore { return &waitStore{postponed: map[string][]time.Time{}} }

func (s *waitStore) Postpone(_ context.Context, j Job, due time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.postponeErr != nil {
		return s.postponeErr
	}
	s.postponed[j.Key()] = append(s.postponed[j.Key()], due)
	return nil
}

func (s *waitStore) failPostpone(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.postponeErr = err
}

// lastDue is the due time of j as it stands in the store.
func (s *waitStore) lastDue(j Job) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.postponed[j.Key()]
	if len(all) == 0 {
		return time.Time{}
	}
	return all[len(all)-1]
}

func (s *waitStore) AddDeadLetter(_ context.Context, d DeadLetter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadErr != nil {
		return s.deadErr
	}
	s.dead = append(s.dead, d)
	return nil
}

func (s *waitStore) DueJobs(context.Context, time.Time, time.Time, int) ([]Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := s.due
	s.due = nil
	return jobs, nil
}

func (s *waitStore) setDue(jobs ...Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = jobs
}

func (s *waitStore) failDeadLetter(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadErr = err
}

func (s *waitStore) ReleaseAll(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released++
	return nil
}

// mail is the messages given to a runner, and what became of them.
type mail struct {
	mu          sync.Mutex
	acks, nacks map[string]int // by name
}

func newMail() *mail { return &mail{acks: map[string]int{}, nacks: map[string]int{}} }

func (m *mail) delivery(name string, j Job) Delivery {
	return Delivery{Job: j, Ack: m.note(m.acks, name), Nack: m.note(m.nacks, name)}
}

func (m *mail) note(in map[string]int, name string) func() {
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		in[name]++
	}
}

func (m *mail) acked(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acks[name]
}

func (m *mail) nacked(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nacks[name]
}

var testConfig = RunnerConfig{Kind: ThreadBatch, Workers: 4, MaxPark: time.Minute, MaxParked: 40, SweepAfter: 5 * time.Minute, Grace: 5 * time.Second}

// bench is a started runner over a waitStore.
type bench struct {
	*Runner
	store *waitStore
	mail  *mail
}

// onBench runs test in a bubble of virtual time, on a runner that is stopped afterwards.
func onBench(t *testing.T, cfg RunnerConfig, h handlerFunc, test func(t *testing.T, b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newWaitStore()
		r, err := NewRunner(cfg, h, store, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		test(t, bench{r, store, newMail()})
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// pass lets d go by in the bubble, and everything that it sets off come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// deliver hands in a job under its own name.
func (b bench) deliver(name string, j Job) { b.Deliver(b.mail.delivery(name, j)) }

func batchJob(account string, n int) Job {
	return Job{Kind: ThreadBatch, Account: account, Run: "run", Batch: int64(n), At: time.Now()}
}

func historyJob(account string) Job { return Job{Kind: History, Account: account, At: time.Now()} }

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func name(account string, n int) string { return fmt.Sprintf("%s/%d", account, n) }
