package threadbatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "account-1"

var (
	errPassing   = &consumers.MailboxError{Fault: consumers.Passing, Status: 500, Reason: "backendError"}
	errThrottled = &consumers.MailboxError{Fault: consumers.Throttled, Wait: 3 * time.Second, Status: 403, Reason: "rateLimitExceeded"}
	errGone      = &consumers.MailboxError{Fault: consumers.Gone, Status: 404, Reason: "notFound"}
	errRevoked   = &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}
)

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

func (q *queue) count(kind consumers.Kind) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, j := range q.jobs {
		if j.Kind == kind {
			n++
		}
	}
	return n
}

// fixture is an account whose whole mailbox is one page of a run, with its first batches open.
type fixture struct {
	*testing.T
	store   *consumertest.Store
	box     *consumertest.Mailbox
	queue   *queue
	handler *Handler
	run     consumers.Run
	batches []consumers.Batch
	threads []string // as listed, newest first
}

func newFixture(t *testing.T, threads, batchSize int) *fixture {
	f := &fixture{T: t, store: consumertest.NewStore(), box: consumertest.NewMailbox("ann@example.com"), queue: &queue{}}
	f.store.AddAccount(account, "ann@example.com")
	f.handler = New(consumers.Base{
		Mailboxes: consumertest.Mailboxes{account: f.box}, Store: f.store, Queue: f.queue, Log: zap.NewNop(), SweepAfter: 5 * time.Minute,
	}, Config{Window: 2, MaxAttempts: 8})
	for range threads {
		f.box.Add(consumers.Message{})
	}
	ctx := t.Context()
	run, _, err := f.store.StartRun(ctx, account, consumers.RunImport, time.Now())
	f.must(err)
	f.must(f.store.PinBaseline(ctx, run.ID, f.box.HistoryID()))
	f.box.PageSize = 1000
	page, err := f.box.ListThreads(ctx, "")
	f.must(err)
	for _, ref := range page.Threads {
		f.threads = append(f.threads, ref.ID)
	}
	f.must(f.store.AddPage(ctx, run.ID, "", page, batchSize))
	f.batches, err = f.store.OpenBatches(ctx, run.ID, 2, time.Now())
	f.must(err)
	f.run = run
	return f
}

func (f *fixture) handle() consumers.Outcome { return f.handleIn(f.Context()) }

func (f *fixture) handleIn(ctx context.Context) consumers.Outcome {
	return f.handler.Handle(ctx, consumers.Job{Kind: consumers.ThreadBatch, Account: account, Run: f.run.ID, Batch: f.batches[0].ID})
}

// handleUntilDone brings the job back as the runner does, and returns the waits that it was told. It needs virtual time.
func (f *fixture) handleUntilDone() (waits []time.Duration) {
	f.Helper()
	for range 100 {
		out := f.handle()
		switch out.Verdict {
		case consumers.VerdictDone:
			return waits
		case consumers.VerdictRequeue:
			waits = append(waits, out.After)
			time.Sleep(out.After)
		case consumers.VerdictRetry:
			time.Sleep(consumers.Backoff(1))
		}
	}
	f.Fatal("not done after 100 handlings")
	return nil
}

func (f *fixture) fail(op, id string, times int, err error) {
	f.box.Inject(consumertest.Fault{Op: op, ID: id, Times: times, Err: err})
}

func (f *fixture) progress() consumers.Progress {
	f.Helper()
	run, err := f.store.ActiveRun(f.Context(), account)
	f.must(err)
	return run.Progress
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// taylorwilsdon/google_workspace_mcp#1009: failed parts were missing silently, or one threw away all others.
func TestEachThreadOfABatchIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 100, 100)
		failing := map[int]error{10: errThrottled, 30: errThrottled, 50: errThrottled, 70: errThrottled, 20: errPassing, 40: errPassing, 60: errGone}
		for i, err := range failing {
			times := 1
			if errors.Is(err, errGone) {
				times = maxGone
			}
			f.fail(consumertest.OpGetThread, f.threads[i], times, err)
		}
		waits := f.handleUntilDone()
		expect(t, "waits: at most the throttles and the failures", len(waits) <= 8, true)
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 100, Stored: 99, Gone: 1})
		for i, id := range f.threads {
			want := 1
			switch err := failing[i]; {
			case errors.Is(err, errGone):
				want = maxGone
			case err != nil:
				want = 2
			}
			expect(t, fmt.Sprintf("fetches of thread %d", i), f.box.Calls(consumertest.OpGetThread, id), want)
		}
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
		expect(t, "initial-sync jobs at the end", f.queue.count(consumers.InitialSync), 1)
	})
}

// dxos/dxos#12466, amitbaz/job-hunter-bot#52: one 404 that passed lost the thread.
func TestAThreadThatIsNotFoundForAMomentIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3, 3)
		f.fail(consumertest.OpGetThread, f.threads[1], maxGone-1, errGone)
		start := time.Now()
		f.handleUntilDone()
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 3, Stored: 3})
		expect(t, "within ten seconds", time.Since(start) < 10*time.Second, true)
	})
}

// garrytan/gbrain#4959: the budget of tries was used up within seconds, as the batch came back for its quota.
func TestFailedThreadBacksOffWhileItsBatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 25, 25)
		broken := f.threads[0]
		f.fail(consumertest.OpGetThread, broken, 7, errPassing)
		for i := 1; i < 25; i++ {
			f.fail(consumertest.OpGetThread, f.threads[i], 1, &consumers.MailboxError{Fault: consumers.Throttled, Wait: 300 * time.Millisecond, Denied: true})
		}
		start := time.Now()
		f.handleUntilDone()
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 25, Stored: 25})
		if took := time.Since(start); took < 100*time.Second {
			t.Errorf("seven tries were over in %s, want them spread over two minutes", took)
		}
	})
}

func TestDenialPutsOnlyTheRestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 25, 25)
		f.fail(consumertest.OpGetThread, f.threads[10], 1, errThrottled)
		out := f.handle()
		expect(t, "wait", out.After, errThrottled.Wait)
		expect(t, "stored", f.progress().Stored, 10)
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 11)
		f.handleUntilDone()
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 26)
	})
}

// garrytan/gbrain#4959: throttles counted as strikes, and healthy threads were excluded for good.
func TestThrottlesAreNoAttemptsAndFailuresAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5, 5)
		throttled, broken := f.threads[1], f.threads[3]
		f.fail(consumertest.OpGetThread, throttled, 10, errThrottled)
		f.fail(consumertest.OpGetThread, broken, 0, errPassing)
		waits := f.handleUntilDone()
		expect(t, "throttles", fmt.Sprint(waits[:10]), fmt.Sprint(slices.Repeat([]time.Duration{errThrottled.Wait}, 10)))
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 5, Stored: 4, Failed: 1})
		dead := f.store.DeadLetters(account)
		if len(dead) != 1 {
			t.Fatalf("got %d dead letters, want 1", len(dead))
		}
		expect(t, "thread set aside", dead[0].ThreadID, broken)
		expect(t, "attempts", dead[0].Attempts, 8)
		expect(t, "cause", dead[0].Cause, "threads.get: passing (500 backendError)")
	})
}

// relaticle/relaticle#640: a run with a batch that failed for good called itself complete.
func TestRunWithADeadThreadIsIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5, 5)
		f.fail(consumertest.OpGetThread, f.threads[3], 0, errPassing)
		f.handleUntilDone()
		run, err := f.store.ActiveRun(t.Context(), account)
		f.must(err)
		run.Listed = true
		finished, err := f.store.FinishRun(t.Context(), run.ID, time.Now())
		f.must(err)
		a, err := f.store.Account(t.Context(), account)
		f.must(err)
		expect(t, "finished", finished, true)
		expect(t, "reason", a.Reason, "incomplete: 1")
	})
}

func TestOutageOfGmailCountsAgainstNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 25, 25)
		f.fail("", "", 0, errPassing)
		for range 100 {
			expect(t, "verdict, for the runner's backoff", f.handle().Verdict, consumers.VerdictRetry)
		}
		expect(t, "threads tried", f.box.Calls(consumertest.OpGetThread), 100)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
		f.box.Heal()
		f.handleUntilDone()
		expect(t, "progress", f.progress().Stored, 25)
	})
}

func TestShutdownIsNeitherFailureNorAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 10, 10)
		ctx, stop := context.WithCancel(t.Context())
		f.box.OnCall = func(_, id string) {
			if id == f.threads[5] {
				stop()
			}
		}
		f.handler.cfg.MaxAttempts = 1
		expect(t, "verdict", f.handleIn(ctx).Verdict, consumers.VerdictRequeue)
		expect(t, "progress", f.progress().Stored, 5)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
		f.box.OnCall = nil
		f.handleUntilDone()
		expect(t, "calls, none twice", f.box.Calls(consumertest.OpGetThread), 10)
	})
}

func TestThreadThatChangedMeanwhileIsFetchedAgainShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3, 3)
		stale := f.threads[1]
		f.box.OnCall = func(_, id string) {
			if id == f.threads[2] { // after the second is stored history names something newer
				return
			}
			if id == stale {
				f.must(f.store.ApplyHistory(t.Context(), account, consumers.HistoryStep{Changes: []consumers.Change{{
					HistoryID: f.box.HistoryID() + 1, Kind: consumers.LabelsAdded, MessageID: stale, ThreadID: stale, Labels: []string{"STARRED"},
				}}}, time.Now()))
			}
		}
		out := f.handle()
		expect(t, "verdict", out.Verdict, consumers.VerdictRequeue)
		expect(t, "wait", out.After > 0 && out.After <= time.Second, true)
		f.box.OnCall = nil
		f.box.Relabel(stale, []string{"STARRED"}, nil)
		f.handleUntilDone()
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 4)
	})
}

// oldIDs gives the fixture a thread of two messages, of which history has named the second and the mailbox has deleted it, so
// that the thread's own id stays behind.
func oldIDs(f *fixture) (thread string, deleted consumers.Change) {
	f.box.OldThreadIDs = true
	thread = f.threads[1]
	m := f.box.Add(consumers.Message{ThreadID: thread})
	named := consumers.Change{HistoryID: m.HistoryID, Kind: consumers.LabelsAdded, MessageID: m.ID, ThreadID: thread, Labels: []string{"STARRED"}}
	f.must(f.store.ApplyHistory(f.Context(), account, consumers.HistoryStep{Changes: []consumers.Change{named}}, time.Now()))
	return thread, consumers.Change{HistoryID: f.box.Delete(m.ID), Kind: consumers.MessageDeleted, MessageID: m.ID, ThreadID: thread}
}

// It was fetched without end, forty units a second.
func TestThreadWhoseIDStaysBehindIsTakenAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3, 3)
		thread, deleted := oldIDs(f)
		start := time.Now()
		f.handleUntilDone()
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 3, Stored: 3})
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread, thread), maxStale)
		expect(t, "tries are spread", time.Since(start) > 5*time.Second, true)
		list := f.store.Fetches(account)
		if len(list) != 1 || list[0].MessageID != deleted.MessageID || list[0].Attempts != 0 {
			t.Errorf("retry list %+v, want the message that history named", list)
		}
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
	})
}

func TestDeletionOfTheNamedMessageMakesItsThreadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3, 3)
		thread, deleted := oldIDs(f)
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRequeue)
		f.must(f.store.ApplyHistory(t.Context(), account, consumers.HistoryStep{Changes: []consumers.Change{deleted}}, time.Now()))
		f.handleUntilDone()
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread, thread), 2)
		expect(t, "retry list", len(f.store.Fetches(account)), 0)
	})
}

func TestThreadThatCannotBeStoredFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5, 5)
		saves := 0
		f.store.Fail = func(method string) error {
			if method != "SaveThread" {
				return nil
			}
			if saves++; saves == 2 {
				return errors.New("value out of range")
			}
			return nil
		}
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRequeue)
		expect(t, "stored", f.progress().Stored, 4)
		f.handleUntilDone()
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 6)
	})
}

func TestThreadThatPanicsFailsAlone(t *testing.T) {
	for _, where := range []string{"fetched", "stored"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 5, 5)
				poison := f.threads[1]
				fetching := ""
				f.box.OnCall = func(op, id string) {
					if op == consumertest.OpGetThread {
						fetching = id
					}
					if where == "fetched" && id == poison {
						panic("a piece of mail")
					}
				}
				f.store.Fail = func(method string) error {
					if where == "stored" && method == "SaveThread" && fetching == poison {
						panic("a piece of mail")
					}
					return nil
				}
				expect(t, "verdict", f.handle().Verdict, consumers.VerdictRequeue)
				expect(t, "stored", f.progress().Stored, 4)
				f.handleUntilDone()
				dead := f.store.DeadLetters(account)
				if len(dead) != 1 {
					t.Fatalf("got %d dead letters, want 1", len(dead))
				}
				expect(t, "thread", dead[0].ThreadID, poison)
				expect(t, "attempts", dead[0].Attempts, 8)
				expect(t, "cause", dead[0].Cause, "panic: string")
				expect(t, "calls", f.box.Calls(consumertest.OpGetThread)+map[string]int{"fetched": 8}[where], 4+8)
			})
		})
	}
}

func TestStoreThatIsAwayCountsAgainstNoThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5, 5)
		f.handler.cfg.MaxAttempts = 1
		f.store.Fail = func(method string) error {
			if method == "SaveThread" || method == "ThreadFailed" {
				return errors.New("away")
			}
			return nil
		}
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 1)
		f.store.Fail = nil
		f.handleUntilDone()
		expect(t, "progress", f.progress().Stored, 5)
	})
}

func TestRevokedAccountStopsTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 5, 5)
		f.fail(consumertest.OpGetThread, f.threads[2], 1, errRevoked)
		expect(t, "outcome", f.handle(), consumers.Done())
		expect(t, "outcome later", f.handle(), consumers.Done())
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 3)
		_, err := f.store.SetState(t.Context(), account, consumers.Importing, "")
		f.must(err)
		f.handleUntilDone()
		expect(t, "progress", f.progress().Stored, 5)
	})
}

// relaticle/relaticle#640: a crash between the end of a batch and the publishing of the next.
func TestRedeliveryAfterACrashOpensTheNextBatches(t *testing.T) {
	f := newFixture(t, 30, 5)
	crashed := false
	f.store.Fail = func(method string) error {
		if method == "OpenBatches" && !crashed {
			crashed = true
			return errors.New("crash")
		}
		return nil
	}
	expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
	expect(t, "published", f.queue.count(consumers.ThreadBatch), 0)
	expect(t, "outcome of the redelivery", f.handle(), consumers.Done())
	expect(t, "published", f.queue.count(consumers.ThreadBatch), 1)
	expect(t, "working", f.progress().Working, 2)
	expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 5)
}

func TestJobsForNothing(t *testing.T) {
	f := newFixture(t, 5, 5)
	for what, j := range map[string]consumers.Job{
		"unknown account": {Kind: consumers.ThreadBatch, Account: "unknown", Batch: 1},
		"unknown batch":   {Kind: consumers.ThreadBatch, Account: account, Batch: 999},
	} {
		expect(t, what, f.handler.Handle(t.Context(), j), consumers.Done())
	}
	expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 0)
}

func TestLongBatchYieldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 25, 25)
		f.box.OnCall = func(string, string) { time.Sleep(400 * time.Millisecond) } // the quota of a new project
		start := time.Now()
		expect(t, "outcome", f.handle(), consumers.Yield())
		expect(t, "time in the slot", time.Since(start), 13*400*time.Millisecond)
		f.handleUntilDone()
		expect(t, "calls", f.box.Calls(consumertest.OpGetThread), 25)
	})
}
