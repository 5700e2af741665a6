package sqlite

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// cutAfter is a context that ends after a number of transactions: the process dies there.
type cutAfter struct {
	context.Context
	left atomic.Int64
}

func cut(ctx context.Context, transactions int) *cutAfter {
	c := &cutAfter{Context: ctx}
	c.left.Store(int64(transactions))
	return c
}

func (c *cutAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

var suiteTime = time.UnixMilli(1_764_500_000_000)

// mirrored gives an account a finished import of one thread with baseline 100, a watch, a label, a dead letter, something on the
// retry list, and a resync under way.
func mirrored(t *testing.T, s *Store, id string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.AddAccount(ctx, consumers.Account{ID: id, Address: id + "@example.com"}, consumers.Sealed{}))
	must(s.SetWatch(ctx, id, consumers.Watch{Expires: suiteTime}))
	must(s.SaveLabels(ctx, id, []consumers.Label{{ID: "L1", Name: "Work"}}, time.Now()))
	must(s.AddDeadLetter(ctx, consumers.DeadLetter{Account: id, Kind: consumers.History, Cause: "500"}))
	page := consumers.ThreadPage{Threads: []consumers.ThreadRef{{ID: "t1", HistoryID: 90}}}
	for _, kind := range []consumers.RunKind{consumers.RunImport, consumers.RunResync} {
		run, _, err := s.StartRun(ctx, id, kind, suiteTime)
		must(err)
		must(s.PinBaseline(ctx, run.ID, 100))
		must(s.AddPage(ctx, run.ID, "", page, 5))
		page.Threads[0].HistoryID = 95
		if kind == consumers.RunResync {
			break
		}
		batches, err := s.OpenBatches(ctx, run.ID, 1, suiteTime)
		must(err)
		_, err = s.SaveThread(ctx, batches[0], threadAt(90), suiteTime)
		must(err)
		_, err = s.FinishBatch(ctx, batches[0])
		must(err)
		_, err = s.FinishRun(ctx, run.ID, suiteTime)
		must(err)
	}
	must(s.ApplyHistory(ctx, id, consumers.HistoryStep{Retry: []consumers.Fetch{{MessageID: "m2", ThreadID: "t2", HistoryID: 100}}}, suiteTime))
	must(s.HistoryDone(ctx, id, suiteTime, suiteTime))
}

func threadAt(h consumers.HistoryID) consumers.Thread {
	return consumers.Thread{ID: "t1", HistoryID: h, Messages: []consumers.Message{{ID: "m1", ThreadID: "t1", HistoryID: h,
		Attachments: []consumers.Attachment{{PartID: "1"}}}}}
}

// An account that is removed only half and added again is imported from the start, wherever the removal was cut off.
func TestRemovalCutOffAnywhereLeavesNoHoleForTheAccountAddedAgain(t *testing.T) {
	s := openStore(t)
	for after := 1; ; after++ {
		mirrored(t, s, "ann")
		err := s.RemoveAccount(cut(t.Context(), after), "ann")
		if err == nil {
			if after < 5 {
				t.Fatalf("the removal was over after %d transactions", after)
			}
			return
		}
		if a, err := s.Account(t.Context(), "ann"); err != nil || a.State != consumers.Stopped || a.Address != "" || a.Cursor != 0 {
			t.Fatalf("cut after %d: %+v, %v; want it stopped, without address and cursor", after, a, err)
		}
		// A history consumer was at work.
		late := consumers.HistoryStep{Messages: []consumers.Message{{ID: "m3", ThreadID: "t3", HistoryID: 120}}, Cursor: 120}
		if err := s.ApplyHistory(t.Context(), "ann", late, suiteTime); err != nil {
			t.Fatal(err)
		}
		wantNew(t, s, after)
		if err := s.RemoveAccount(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
	}
}

// wantNew adds the account again and checks that it has nothing and that its import is due.
func wantNew(t *testing.T, s *Store, after int) {
	t.Helper()
	ctx := t.Context()
	if err := s.AddAccount(ctx, consumers.Account{ID: "ann", Address: "ann@example.com"}, consumers.Sealed{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Account(ctx, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if want := (consumers.Account{ID: "ann", Address: "ann@example.com", State: consumers.Importing}); !reflect.DeepEqual(a, want) {
		t.Errorf("cut after %d: added again it is %+v, want %+v", after, a, want)
	}
	live, err := s.live(ctx, "ann")
	if err != nil || len(live) > 0 {
		t.Errorf("cut after %d: %d messages are left, %v", after, len(live), err)
	}
	jobs, err := s.DueJobs(ctx, suiteTime, suiteTime, 10)
	if err != nil || len(jobs) != 1 || jobs[0].Kind != consumers.InitialSync || jobs[0].Run != "" {
		t.Errorf("cut after %d: due are %+v, %v; want the first job", after, jobs, err)
	}
}

// A run that a removal ended takes nothing from a consumer that still works on it.
func TestLateConsumersOfARemovedAccountKeepNothingAlive(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	mirrored(t, s, "ann")
	run, err := s.ActiveRun(ctx, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAccount(cut(ctx, 1), "ann"); err == nil {
		t.Fatal("the removal was not cut off")
	}
	if n, err := s.QueueAbsent(ctx, run.ID, 5); n != 0 || err != nil {
		t.Errorf("QueueAbsent = %d, %v", n, err)
	}
	if done, err := s.FinishRun(ctx, run.ID, suiteTime); done || err != nil {
		t.Errorf("FinishRun = %v, %v", done, err)
	}
	if err := s.RemoveAccount(ctx, "ann"); err != nil {
		t.Error(err)
	}
}

// A crash right after the end of a run leaves its threads: they go when the file is opened again.
func TestThreadsOfAFinishedRunGoInTheEnd(t *testing.T) {
	s := openStore(t)
	ctx := t.Context()
	if err := s.AddAccount(ctx, consumers.Account{ID: "ann"}, consumers.Sealed{}); err != nil {
		t.Fatal(err)
	}
	run, _, err := s.StartRun(ctx, "ann", consumers.RunImport, suiteTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PinBaseline(ctx, run.ID, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.AddPage(ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{{ID: "t1", HistoryID: 90}}}, 5); err != nil {
		t.Fatal(err)
	}
	batches, err := s.OpenBatches(ctx, run.ID, 1, suiteTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SaveThread(ctx, batches[0], threadAt(90), suiteTime); err != nil {
		t.Fatal(err)
	}
	if done, err := s.FinishRun(cut(ctx, 1), run.ID, suiteTime); !done || err != nil {
		t.Fatalf("FinishRun = %v, %v; what is left to tidy up does not matter to it", done, err)
	}
	count := func() (n int) {
		if err := s.row(ctx, `SELECT count(*) FROM run_threads`, nil, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 1 {
		t.Fatalf("%d threads are left by the crash, want 1", n)
	}
	var file string
	if err := s.row(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`, nil, &file); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d threads are left after the next start", n)
	}
}
