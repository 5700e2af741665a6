package history

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "account-1"
	poll    = 5 * time.Minute
)

var (
	errPassing   = &consumers.MailboxError{Fault: consumers.Passing, Status: 503, Reason: "backendError"}
	errThrottled = &consumers.MailboxError{Fault: consumers.Throttled, Wait: 7 * time.Second, Denied: true}
	errGone      = &consumers.MailboxError{Fault: consumers.Gone, Status: 404, Reason: "notFound"}
	errRevoked   = &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}
)

// queue keeps what was published.
type queue struct {
	mu   sync.Mutex
	jobs []consumers.Job
}

func (q *queue) Publish(_ context.Context, jobs ...consumers.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, jobs...)
	return nil
}

func (q *queue) kinds() map[consumers.Kind]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := map[consumers.Kind]int{}
	for _, j := range q.jobs {
		n[j.Kind]++
	}
	return n
}

// fixture is one account in a store and a mailbox, both in memory.
type fixture struct {
	*testing.T
	store   *consumertest.Store
	box     *consumertest.Mailbox
	queue   *queue
	handler *Handler
	applied []consumers.HistoryID
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, store: consumertest.NewStore(), box: consumertest.NewMailbox("ann@example.com"), queue: &queue{}}
	f.store.AddAccount(account, "ann@example.com")
	f.handler = f.newHandler(func(_ string, cursor consumers.HistoryID) { f.applied = append(f.applied, cursor) })
	return f
}

// newHandler is another process's handler on the same store and mailbox.
func (f *fixture) newHandler(onApplied func(string, consumers.HistoryID)) *Handler {
	base := consumers.Base{
		Mailboxes: consumertest.Mailboxes{account: f.box}, Store: f.store, Queue: f.queue, Log: zap.NewNop(), SweepAfter: poll,
	}
	return New(base, Config{PollInterval: poll, MaxAttempts: 4, OnApplied: onApplied})
}

// mirror brings the whole mailbox into the store, as a run does. Without finish the last batch stays open.
func (f *fixture) mirror(kind consumers.RunKind, finish bool) {
	f.Helper()
	ctx := f.Context()
	run, _, err := f.store.StartRun(ctx, account, kind, time.Now())
	f.must(err)
	f.must(f.store.PinBaseline(ctx, run.ID, f.box.HistoryID()))
	token := ""
	for first := true; first || token != ""; first = false {
		page, err := f.box.ListThreads(ctx, token)
		f.must(err)
		f.must(f.store.AddPage(ctx, run.ID, token, page, 25))
		token = page.Next
	}
	batches, err := f.store.OpenBatches(ctx, run.ID, 1000, time.Now())
	f.must(err)
	if !finish {
		return
	}
	for _, b := range batches {
		for _, id := range b.Threads {
			th, err := f.box.GetThread(ctx, id)
			f.must(err)
			_, err = f.store.SaveThread(ctx, b, th, time.Now())
			f.must(err)
		}
		_, err := f.store.FinishBatch(ctx, b)
		f.must(err)
	}
	if kind == consumers.RunResync {
		_, err := f.store.QueueAbsent(ctx, run.ID, 25)
		f.must(err)
	}
	done, err := f.store.FinishRun(ctx, run.ID, time.Now())
	f.must(err)
	if !done {
		f.Fatal("the run is not finished")
	}
}

// add puts n new messages, each a thread of its own, into the mailbox.
func (f *fixture) add(n int) []consumers.Message {
	out := make([]consumers.Message, n)
	for i := range out {
		out[i] = f.box.Add(consumers.Message{Subject: fmt.Sprint("message ", i)})
	}
	return out
}

func (f *fixture) reply(to consumers.Message) consumers.Message {
	return f.box.Add(consumers.Message{ThreadID: to.ThreadID})
}

// handle works on one job.
func (f *fixture) handle() consumers.Outcome {
	return f.handler.Handle(f.Context(), consumers.Job{Kind: consumers.History, Account: account, At: time.Now()})
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) account() consumers.Account {
	f.Helper()
	a, err := f.store.Account(f.Context(), account)
	f.must(err)
	return a
}

func (f *fixture) done(out consumers.Outcome) {
	f.Helper()
	if out.Verdict != consumers.VerdictDone {
		f.Fatalf("got %+v, want done", out)
	}
}

// equal checks that the mirror is the mailbox, and that the cursor has reached its end.
func (f *fixture) equal() {
	f.Helper()
	if d := cmp.Diff(f.box.Live(), f.store.Live(account), cmpopts.EquateEmpty()); d != "" {
		f.Errorf("mirror and mailbox differ (-mailbox +mirror):\n%s", d)
	}
	expect(f.T, "cursor", f.account().Cursor, f.box.HistoryID())
}

func (f *fixture) fetches() int {
	return f.box.Calls(consumertest.OpGetMessage) + f.box.Calls(consumertest.OpGetThread)
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
