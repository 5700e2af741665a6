package initialsync

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
	"github.com/gmailsync/gmailsync/gmailquota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "account-1"

var config = Config{BatchSize: 10, Window: 2}

// queue keeps what was published; while it is away it refuses.
type queue struct {
	mu   sync.Mutex
	away bool
	jobs []consumers.Job
}

func (q *queue) Publish(_ context.Context, jobs ...consumers.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away {
		return errors.New("the queue is away")
	}
	q.jobs = append(q.jobs, jobs...)
	return nil
}

// take returns the published jobs of one kind and forgets them.
func (q *queue) take(kind consumers.Kind) []consumers.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []consumers.Job
	q.jobs = slices.DeleteFunc(q.jobs, func(j consumers.Job) bool {
		if j.Kind == kind {
			taken = append(taken, j)
		}
		return j.Kind == kind
	})
	return taken
}

type fixture struct {
	*testing.T
	store   *consumertest.Store
	box     *consumertest.Mailbox
	queue   *queue
	handler *Handler
	calls   []string
}

func newFixture(t *testing.T, threads int) *fixture {
	f := &fixture{T: t, store: consumertest.NewStore(), box: consumertest.NewMailbox("ann@example.com"), queue: &queue{}}
	f.box.PageSize = 50
	f.box.OnCall = func(op, _ string) { f.calls = append(f.calls, op) }
	f.store.AddAccount(account, "ann@example.com")
	for i := range threads {
		f.box.Add(consumers.Message{Subject: fmt.Sprint(i)})
	}
	f.handler = New(consumers.Base{
		Mailboxes: consumertest.Mailboxes{account: f.box}, Store: f.store, Queue: f.queue, Log: zap.NewNop(), SweepAfter: 5 * time.Minute,
	}, config)
	return f
}

func (f *fixture) handle() consumers.Outcome {
	return f.handler.Handle(f.Context(), consumers.Job{Kind: consumers.InitialSync, Account: account})
}

// fetch stores all threads of the published batches, as the thread batches do.
func (f *fixture) fetch() {
	f.Helper()
	ctx := f.Context()
	for _, j := range f.queue.take(consumers.ThreadBatch) {
		b, ok, err := f.store.Batch(ctx, account, j.Batch)
		f.must(err)
		if !ok {
			continue
		}
		for _, id := range b.Threads {
			th, err := f.box.GetThread(ctx, id)
			if consumers.FaultOf(err) == consumers.Gone && err != nil {
				f.must(f.store.ThreadGone(ctx, b, id, time.Now()))
				continue
			}
			f.must(err)
			_, err = f.store.SaveThread(ctx, b, th, time.Now())
			f.must(err)
		}
		_, err = f.store.FinishBatch(ctx, b)
		f.must(err)
	}
}

// finish goes on until the account is Live.
func (f *fixture) finish() {
	f.Helper()
	for range 1000 {
		f.handle()
		if f.account().State == consumers.Live {
			return
		}
		f.fetch()
	}
	f.Fatalf("not finished: %+v", f.run())
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

func (f *fixture) run() consumers.Run {
	f.Helper()
	run, err := f.store.ActiveRun(f.Context(), account)
	f.must(err)
	return run
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// newborn opens one mailbox, whose profile has no history id.
type newborn struct{ box }

type box struct{ *consumertest.Mailbox }

func (b newborn) Mailbox(context.Context, string, gmailquota.Class) (consumers.Mailbox, error) {
	return b.box, nil
}

func (box) Profile(context.Context) (consumers.Profile, error) { return consumers.Profile{}, nil }

func TestAProfileWithoutAHistoryIDIsAFailureAndListsNothing(t *testing.T) {
	f := newFixture(t, 3)
	f.handler.Mailboxes = newborn{box{f.box}}
	expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
	expect(t, "pages listed", f.box.Calls(consumertest.OpListThreads), 0)
}

// kenn-io/msgvault#697: the baseline was read after the listing, so what changed in between was never seen.
func TestBaselineIsPinnedBeforeTheListing(t *testing.T) {
	f := newFixture(t, 120)
	f.box.WatchExpires = time.Now().Add(7 * 24 * time.Hour)
	f.box.LabelList = []consumers.Label{{ID: "Label_1", Name: "Plans", Type: "user"}}
	baseline := f.box.HistoryID()
	seen := false
	f.box.OnCall = func(op, _ string) {
		f.calls = append(f.calls, op)
		if op == consumertest.OpListThreads && !seen {
			seen = true
			f.box.Add(consumers.Message{})
		}
	}
	expect(t, "outcome", f.handle(), consumers.Done())
	expect(t, "order", fmt.Sprint(f.calls[:4]), fmt.Sprint([]string{
		consumertest.OpProfile, consumertest.OpWatch, consumertest.OpLabels, consumertest.OpListThreads,
	}))
	f.finish()
	expect(t, "cursor", f.account().Cursor, baseline)
	expect(t, "profiles read", f.box.Calls(consumertest.OpProfile), 1)
	expect(t, "watches", f.box.Calls(consumertest.OpWatch), 1)
	expect(t, "labels", len(f.store.Labels(account)), 1)
	expect(t, "history jobs", len(f.queue.take(consumers.History)), 1)
}

func TestBeginIsRepeatedWholeAfterADenial(t *testing.T) {
	f := newFixture(t, 1)
	f.box.WatchExpires = time.Now().Add(7 * 24 * time.Hour)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpLabels, Times: 1, Err: &consumers.MailboxError{Fault: consumers.Throttled, Wait: time.Second}})
	out := f.handle()
	expect(t, "wait", out.After, time.Second)
	expect(t, "baseline before all is in place", f.run().Baseline, 0)
	f.finish()
	expect(t, "watches, as 100 units are dear", f.box.Calls(consumertest.OpWatch), 1)
}

// A topic that does not let Gmail publish refuses every account's watch; polling must find the changes all the same.
func TestARefusedWatchDoesNotStopTheImport(t *testing.T) {
	f := newFixture(t, 3)
	f.box.WatchExpires = time.Now().Add(7 * 24 * time.Hour)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpWatch, Times: 1, Err: &consumers.MailboxError{
		Op: "watch", Fault: consumers.AccountFault, State: consumers.Stopped, Status: 403, Reason: "forbidden",
	}})
	f.finish()
	expect(t, "watch", f.account().WatchExpires.IsZero(), true)
}

func TestNoMoreThanAWindowOfBatchesIsOpen(t *testing.T) {
	f := newFixture(t, 450)
	for f.account().State != consumers.Live {
		f.handle()
		if f.account().State == consumers.Live {
			break
		}
		p := f.run().Progress
		if p.Working > config.Window {
			t.Fatalf("%d batches are open, the window is %d", p.Working, config.Window)
		}
		if ahead := p.Pending + p.Working; ahead > config.Window-1+f.box.PageSize/config.BatchSize {
			t.Fatalf("%d batches are listed ahead", ahead)
		}
		f.fetch()
	}
	expect(t, "stored", len(f.store.Live(account)), 450)
	expect(t, "pages", f.box.Calls(consumertest.OpListThreads), 9)
}

// gapped answers every other page empty, with a token all the same.
type gapped struct{ consumertest.Mailboxes }

func (g gapped) Mailbox(ctx context.Context, account string, class gmailquota.Class) (consumers.Mailbox, error) {
	m, err := g.Mailboxes.Mailbox(ctx, account, class)
	return gappedBox{m}, err
}

type gappedBox struct{ consumers.Mailbox }

func (b gappedBox) ListThreads(ctx context.Context, token string) (consumers.ThreadPage, error) {
	if gap := len(token)%2 == 1; !gap {
		return consumers.ThreadPage{Next: token + "."}, nil
	}
	page, err := b.Mailbox.ListThreads(ctx, token[:len(token)-1])
	if len(page.Next)%2 == 1 {
		page.Next = "0" + page.Next
	}
	return page, err
}

// postalsys/emailengine#425: the listing ended early, on an estimate. Here only the missing token ends it.
func TestOnlyTheMissingTokenEndsTheListing(t *testing.T) {
	f := newFixture(t, 450)
	f.handler.Mailboxes = gapped{consumertest.Mailboxes{account: f.box}}
	f.finish()
	expect(t, "stored", len(f.store.Live(account)), 450)
}

// relaticle/relaticle#640: pages were lost between the checkpoint and the publishing.
func TestPageWhoseBatchesWereNotPublishedIsNotLost(t *testing.T) {
	f := newFixture(t, 120)
	f.queue.away = true
	expect(t, "outcome", f.handle(), consumers.Done())
	expect(t, "batches open", f.run().Progress.Working, 2)
	f.queue.away = false

	jobs, err := f.store.DueJobs(t.Context(), time.Now().Add(time.Minute), time.Now().Add(time.Hour), 100)
	f.must(err)
	batches := 0
	for _, j := range jobs {
		if j.Kind == consumers.ThreadBatch {
			batches++
		}
	}
	expect(t, "batches that the sweeper finds within a minute", batches, 2)
	f.must(f.queue.Publish(t.Context(), jobs...))
	f.finish()
	expect(t, "stored", len(f.store.Live(account)), 120)
}

// relaticle/relaticle#640: a crash at any store call, before or after it took effect.
func TestCrashAtEachStoreCallLosesNoPage(t *testing.T) {
	for crash := 1; ; crash++ {
		f := newFixture(t, 120)
		n, crashed := 0, false
		f.store.Fail = func(string) error {
			if n++; n == crash {
				crashed = true
				return errors.New("crash")
			}
			return nil
		}
		f.handle()
		f.store.Fail = nil
		if !crashed {
			break
		}
		f.must(f.store.ReleaseAll(t.Context()))
		jobs, err := f.store.DueJobs(t.Context(), time.Now(), time.Now().Add(time.Hour), 100)
		f.must(err)
		f.must(f.queue.Publish(t.Context(), jobs...))
		f.finish()
		expect(t, fmt.Sprintf("stored after crash %d", crash), len(f.store.Live(account)), 120)
	}
}

// margince/margince#4646: a first import that failed stayed dead after the user reconnected.
func TestImportResumesAtItsPageAfterReconnecting(t *testing.T) {
	f := newFixture(t, 1124)
	for range 6 {
		f.handle()
		f.fetch()
	}
	token := f.run().PageToken
	stored := f.run().Progress.Stored
	f.box.Inject(consumertest.Fault{Err: &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}})
	for f.account().State.Active() {
		f.handle()
		f.box.Heal()
		f.fetch()
		f.box.Inject(consumertest.Fault{Err: &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}})
	}
	calls := len(f.calls)
	expect(t, "outcome while revoked", f.handle(), consumers.Done())
	expect(t, "calls while revoked", len(f.calls)-calls, 0)

	f.box.Heal()
	_, err := f.store.SetState(t.Context(), account, consumers.Importing, "")
	f.must(err)
	expect(t, "share imported is kept", f.run().Progress.Stored >= stored, true)
	f.finish()
	expect(t, "the first page is listed once", f.box.Calls(consumertest.OpListThreads, ""), 1)
	expect(t, "the saved page is asked again", f.box.Calls(consumertest.OpListThreads, token) >= 1, true)
	expect(t, "stored", len(f.store.Live(account)), 1124)
}

// A token that is refused once is refused for ever, as one is that has grown old while the account was revoked.
func TestRejectedPageTokenBeginsTheListingAgain(t *testing.T) {
	for _, fault := range []consumers.Fault{consumers.Permanent, consumers.Gone} {
		t.Run(fault.String(), func(t *testing.T) {
			f := newFixture(t, 450)
			f.handle()
			token := f.run().PageToken
			f.box.Inject(consumertest.Fault{Op: consumertest.OpListThreads, ID: token, Err: &consumers.MailboxError{Fault: fault, Status: 400}})
			f.box.Add(consumers.Message{}) // so that the pages' bounds, which are the fake's tokens, are others
			for f.box.Calls(consumertest.OpListThreads, token) == 0 {
				f.fetch()
				if f.handle().Verdict == consumers.VerdictRetry {
					break
				}
			}
			f.finish()
			expect(t, "tries with the refused token", f.box.Calls(consumertest.OpListThreads, token), 1)
			expect(t, "first page listed", f.box.Calls(consumertest.OpListThreads, ""), 2)
			expect(t, "stored", len(f.store.Live(account)), 451)
			expect(t, "threads fetched, each once", f.box.Calls(consumertest.OpGetThread), 451)
		})
	}
}

func TestPassingFaultOfTheListingKeepsItsPage(t *testing.T) {
	f := newFixture(t, 450)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpListThreads, Skip: 1, Times: 3, Err: &consumers.MailboxError{Fault: consumers.Passing, Status: 503}})
	f.finish()
	expect(t, "first page listed", f.box.Calls(consumertest.OpListThreads, ""), 1)
	expect(t, "stored", len(f.store.Live(account)), 450)
}

// kenn-io/msgvault#697: what was deleted, added and relabelled while the history was too old.
func TestResyncFindsAdditionsDeletionsAndChanges(t *testing.T) {
	f := newFixture(t, 120)
	f.finish()
	f.queue.take(consumers.History)
	fetched := f.box.Calls(consumertest.OpGetThread)
	mail := f.box.Live()
	f.box.Delete(mail[1].ID)
	f.box.Delete(mail[2].ID)
	f.box.Add(consumers.Message{})
	f.box.Add(consumers.Message{})
	f.box.Relabel(mail[4].ID, []string{"TRASH"}, []string{"INBOX"})
	f.box.ExpireHistory()
	_, _, err := f.store.StartRun(t.Context(), account, consumers.RunResync, time.Now())
	f.must(err)
	cursor := f.box.HistoryID()
	f.finish()
	expect(t, "threads fetched: two new, two gone, one changed", f.box.Calls(consumertest.OpGetThread)-fetched, 5)
	expect(t, "stored", len(f.store.Live(account)), 120)
	expect(t, "cursor read before the listing", f.account().Cursor, cursor)
}

// kenn-io/msgvault#697: half a list must delete nothing.
func TestHalfAListDeletesNothing(t *testing.T) {
	f := newFixture(t, 120)
	f.finish()
	_, _, err := f.store.StartRun(t.Context(), account, consumers.RunResync, time.Now())
	f.must(err)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpListThreads, Skip: 1, Times: 5, Err: &consumers.MailboxError{Fault: consumers.Passing, Status: 503}})
	for range 5 {
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
		expect(t, "queued as absent", f.run().AbsentQueued, false)
		expect(t, "stored", len(f.store.Live(account)), 120)
	}
	fetched := f.box.Calls(consumertest.OpGetThread)
	f.finish()
	expect(t, "fetched, as nothing differs", f.box.Calls(consumertest.OpGetThread)-fetched, 0)
	expect(t, "stored", len(f.store.Live(account)), 120)
}

func TestLongListingYieldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 450)
		f.finish()
		_, _, err := f.store.StartRun(t.Context(), account, consumers.RunResync, time.Now())
		f.must(err)
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpListThreads {
				time.Sleep(2 * time.Second)
			}
		}
		start := time.Now()
		expect(t, "outcome", f.handle(), consumers.Yield())
		expect(t, "time in the slot", time.Since(start), 6*time.Second)
		f.finish()
	})
}

func TestAccountsThatAreNotToBeListed(t *testing.T) {
	f := newFixture(t, 10)
	out := f.handler.Handle(t.Context(), consumers.Job{Kind: consumers.InitialSync, Account: "unknown"})
	expect(t, "unknown account", out, consumers.Done())
	f.finish()
	calls := len(f.calls)
	expect(t, "live account without a run", f.handle(), consumers.Done())
	_, err := f.store.SetState(t.Context(), account, consumers.Stopped, "")
	f.must(err)
	expect(t, "stopped account", f.handle(), consumers.Done())
	expect(t, "calls", len(f.calls)-calls, 0)

	_, err = f.store.SetState(t.Context(), account, consumers.Resyncing, "")
	f.must(err)
	f.handle()
	expect(t, "an account that is to be resynced gets a run", f.box.Calls(consumertest.OpProfile), 2)
}
