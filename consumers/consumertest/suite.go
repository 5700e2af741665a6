package consumertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gmailsync/gmailsync/consumers"
)

// Fixture is an empty store under test, with what the port does not offer.
type Fixture struct {
	Store consumers.Store
	// AddAccount adds an account in state Importing whose first job is due at once.
	AddAccount func(ctx context.Context, id, address string) error
	// Live returns the messages that are not deleted, whole, ordered by id.
	Live        func(ctx context.Context, account string) ([]consumers.Message, error)
	Labels      func(ctx context.Context, account string) ([]consumers.Label, error)
	DeadLetters func(ctx context.Context, account string) ([]consumers.DeadLetter, error)
}

// StoreSuite tests the contract of every method of consumers.Store. open makes an empty store and sees to its end.
func StoreSuite(t *testing.T, open func(t *testing.T) Fixture) {
	for _, group := range []struct {
		name  string
		tests map[string]func(*env)
	}{
		{"account", accountTests}, {"run", runTests}, {"thread", threadTests}, {"history", historyTests}, {"due", dueTests},
		{"dead letters", deadTests}, {"scope", scopeTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					e := &env{T: t, Fixture: open(t), ctx: t.Context()}
					e.must(e.AddAccount(e.ctx, acct, "Ann@Example.com"))
					test(e)
				})
			}
		})
	}
	t.Run("random", func(t *testing.T) { randomSuite(t, open) })
}

const (
	acct      = "account-1"
	batchSize = 3
)

// now is the suite's time; stores keep milliseconds.
var now = time.Date(2026, 11, 29, 12, 0, 0, 5e6, time.UTC)

// env is one test with its store and the account acct.
type env struct {
	*testing.T
	Fixture
	ctx context.Context
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) wantErr(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("got error %v, want %v", err, want)
	}
}

func (e *env) equal(what string, got, want any) {
	e.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		e.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func (e *env) account() consumers.Account {
	e.Helper()
	a, err := e.Store.Account(e.ctx, acct)
	e.must(err)
	return a
}

// started begins a run with a baseline.
func (e *env) started(kind consumers.RunKind, baseline consumers.HistoryID) consumers.Run {
	e.Helper()
	run, ok, err := e.Store.StartRun(e.ctx, acct, kind, now)
	e.must(err)
	if !ok {
		e.Fatal("StartRun found a run that the test did not start")
	}
	e.must(e.Store.PinBaseline(e.ctx, run.ID, baseline))
	return e.active()
}

func (e *env) active() consumers.Run {
	e.Helper()
	run, err := e.Store.ActiveRun(e.ctx, acct)
	e.must(err)
	return run
}

// list stores the only page of the run and opens all its batches.
func (e *env) list(run consumers.Run, refs ...consumers.ThreadRef) []consumers.Batch {
	e.Helper()
	e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: refs}, batchSize))
	return e.open(run)
}

func (e *env) open(run consumers.Run) []consumers.Batch {
	e.Helper()
	batches, err := e.Store.OpenBatches(e.ctx, run.ID, 1000, now.Add(time.Minute))
	e.must(err)
	return batches
}

// imported brings threads in through a finished import with baseline 100.
func (e *env) imported(threads ...consumers.Thread) {
	e.Helper()
	run := e.started(consumers.RunImport, 100)
	var refs []consumers.ThreadRef
	byID := map[string]consumers.Thread{}
	for _, th := range threads {
		refs = append(refs, consumers.ThreadRef{ID: th.ID, HistoryID: th.HistoryID})
		byID[th.ID] = th
	}
	for _, b := range e.list(run, refs...) {
		for _, id := range b.Threads {
			e.save(b, byID[id], true)
		}
		_, err := e.Store.FinishBatch(e.ctx, b)
		e.must(err)
	}
	done, err := e.Store.FinishRun(e.ctx, run.ID, now)
	e.must(err)
	if !done {
		e.Fatal("FinishRun did not finish an import that has nothing open")
	}
}

func (e *env) save(b consumers.Batch, th consumers.Thread, wantComplete bool) {
	e.Helper()
	complete, err := e.Store.SaveThread(e.ctx, b, th, now)
	e.must(err)
	if complete != wantComplete {
		e.Errorf("SaveThread of a snapshot at %d: complete = %v, want %v", th.HistoryID, complete, wantComplete)
	}
}

func (e *env) apply(step consumers.HistoryStep) {
	e.Helper()
	e.must(e.Store.ApplyHistory(e.ctx, acct, step, now))
}

// labels returns the live messages' labels by id.
func (e *env) labels() map[string][]string {
	e.Helper()
	live, err := e.Live(e.ctx, acct)
	e.must(err)
	got := map[string][]string{}
	for _, m := range live {
		got[m.ID] = m.Labels
	}
	return got
}

func (e *env) wantLabels(want map[string][]string) {
	e.Helper()
	e.equal("live messages and their labels", e.labels(), want)
}

func (e *env) thread(id string) (consumers.ThreadState, bool) {
	e.Helper()
	got, err := e.Store.Threads(e.ctx, acct, []string{id})
	e.must(err)
	state, ok := got[id]
	return state, ok
}

func (e *env) progress() consumers.Progress {
	e.Helper()
	return e.active().Progress
}

// jobs takes what is due at the time, postponed by an hour.
func (e *env) jobs(at time.Time) []consumers.Job {
	e.Helper()
	jobs, err := e.Store.DueJobs(e.ctx, at, at.Add(time.Hour), 100)
	e.must(err)
	for i := range jobs {
		jobs[i].At = time.Time{}
	}
	slices.SortFunc(jobs, func(a, b consumers.Job) int {
		if a.Key() < b.Key() {
			return -1
		}
		return 1
	})
	return jobs
}

func ref(id string, h consumers.HistoryID) consumers.ThreadRef {
	return consumers.ThreadRef{ID: id, HistoryID: h}
}

func snapshot(id string, h consumers.HistoryID, messages ...consumers.Message) consumers.Thread {
	return consumers.Thread{ID: id, HistoryID: h, Messages: messages}
}

func msg(id string, h consumers.HistoryID, labels ...string) consumers.Message {
	return consumers.Message{ID: id, ThreadID: "t1", HistoryID: h, Labels: labels, Subject: "subject of " + id,
		InternalDate: now, Raw: []byte(`{"id":"` + id + `"}`)}
}

func change(h consumers.HistoryID, kind consumers.ChangeKind, id string, labels ...string) consumers.Change {
	return consumers.Change{HistoryID: h, Kind: kind, MessageID: id, ThreadID: "t1", Labels: labels}
}
