package consumertest

import (
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

var dueTests = map[string]func(*env){
	"a new account's first job is due until its run has started": func(e *env) {
		first := consumers.Job{Kind: consumers.InitialSync, Account: acct}
		e.wantJobs(now, first)
		e.wantJobs(now) // postponed by an hour
		e.wantJobs(now.Add(time.Hour), first)
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.History, Account: acct}, now.Add(100*time.Hour))) // not open: no effect
		e.wantJobs(now.Add(2*time.Hour), first)
		run := e.started(consumers.RunImport, 0)
		e.wantJobs(now.Add(9*time.Hour), consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: run.ID})
	},

	// relaticle/relaticle#640
	"everything open comes back when it is lost": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		e.jobs(now)
		b := e.list(run, ref("t1", 90))[0] // due again in a minute
		sync := consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: run.ID}
		history := consumers.Job{Kind: consumers.History, Account: acct}
		batch := consumers.Job{Kind: consumers.ThreadBatch, Account: acct, Run: run.ID, Batch: b.ID}
		e.wantJobs(now)
		e.wantJobs(now.Add(time.Minute), batch)
		e.wantJobs(now.Add(time.Hour), history, sync)
		e.wantJobs(now.Add(3*time.Hour), history, sync, batch)
		e.must(e.Store.ThreadGone(e.ctx, b, "t1", now))
		_, err := e.Store.FinishBatch(e.ctx, b)
		e.must(err)
		e.wantJobs(now.Add(5*time.Hour), history, sync)
		_, err = e.Store.FinishRun(e.ctx, run.ID, now.Add(6*time.Hour))
		e.must(err)
		e.wantJobs(now.Add(6*time.Hour), history) // due at once after the run
	},

	"a batch that is pending is not due": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1)}}, batchSize))
		e.wantJobs(now.Add(time.Hour), consumers.Job{Kind: consumers.History, Account: acct},
			consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: run.ID})
	},

	"the work of an account that has stopped waits and is due when it resumes": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90))[0]
		all := []consumers.Job{{Kind: consumers.History, Account: acct}, {Kind: consumers.InitialSync, Account: acct, Run: run.ID},
			{Kind: consumers.ThreadBatch, Account: acct, Run: run.ID, Batch: b.ID}}
		for _, j := range all {
			e.must(e.Store.Postpone(e.ctx, j, now.Add(24*time.Hour)))
		}
		_, err := e.Store.SetState(e.ctx, acct, consumers.Reauth, "grant revoked")
		e.must(err)
		e.wantJobs(now.Add(48 * time.Hour))
		_, err = e.Store.SetState(e.ctx, acct, consumers.Importing, "")
		e.must(err)
		e.wantJobs(now, all...)
	},

	"history waits while the cursor does not count": func(e *env) {
		e.imported()
		history := consumers.Job{Kind: consumers.History, Account: acct}
		e.wantJobs(now.Add(time.Hour), history)
		run := e.started(consumers.RunResync, 0) // the old cursor is too old, the new one not pinned
		sync := consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: run.ID}
		e.wantJobs(now.Add(3*time.Hour), sync)
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 500))
		e.wantJobs(now.Add(5*time.Hour), history, sync)
	},

	"an account set to resync has its first job due": func(e *env) {
		e.imported()
		_, err := e.Store.SetState(e.ctx, acct, consumers.Resyncing, "asked for")
		e.must(err)
		e.wantJobs(now, consumers.Job{Kind: consumers.InitialSync, Account: acct})
	},

	"history is due again when it was told, or when the retry list is": func(e *env) {
		e.imported()
		history := consumers.Job{Kind: consumers.History, Account: acct}
		e.must(e.Store.HistoryDone(e.ctx, acct, now, now.Add(5*time.Minute)))
		if a := e.account(); !a.HistoryAt.Equal(now) {
			e.Errorf("history at %v, want %v", a.HistoryAt, now)
		}
		e.wantJobs(now.Add(5*time.Minute - time.Second))
		e.wantJobs(now.Add(5*time.Minute), history)
		e.apply(consumers.HistoryStep{Retry: []consumers.Fetch{{MessageID: "m1", ThreadID: "t1", HistoryID: 110, Attempts: 1, Due: now.Add(2 * time.Second)}}})
		e.must(e.Store.HistoryDone(e.ctx, acct, now, now.Add(5*time.Minute)))
		e.wantJobs(now.Add(2*time.Second), history)
	},

	"a postponed job comes when it was told": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.History, Account: acct}, now.Add(24*time.Hour)))
		b := e.list(run, ref("t1", 90))[0]
		for _, j := range []consumers.Job{{Kind: consumers.InitialSync, Account: acct, Run: run.ID},
			{Kind: consumers.ThreadBatch, Account: acct, Run: run.ID, Batch: b.ID}} {
			e.jobs(now.Add(time.Hour))
			e.must(e.Store.Postpone(e.ctx, j, now.Add(10*time.Minute)))
			e.wantJobs(now.Add(9 * time.Minute))
			e.wantJobs(now.Add(10*time.Minute), j)
		}
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: "an earlier run"}, now))
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.ThreadBatch, Account: acct, Run: run.ID, Batch: 99}, now))
		e.wantJobs(now)
	},

	"no more jobs than asked, the longest due first": func(e *env) {
		for i, id := range []string{"account-2", "account-3"} {
			e.must(e.AddAccount(e.ctx, id, id+"@example.com"))
			e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.InitialSync, Account: id}, now.Add(time.Duration(-i)*time.Hour)))
		}
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.InitialSync, Account: acct}, now.Add(-time.Minute)))
		jobs, err := e.Store.DueJobs(e.ctx, now, now.Add(time.Hour), 2)
		e.must(err)
		e.equal("jobs", jobs, []consumers.Job{{Kind: consumers.InitialSync, Account: "account-3", At: now}, {Kind: consumers.InitialSync, Account: acct, At: now}})
	},

	"all open work can be released at once": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90))[0]
		all := []consumers.Job{{Kind: consumers.History, Account: acct}, {Kind: consumers.InitialSync, Account: acct, Run: run.ID},
			{Kind: consumers.ThreadBatch, Account: acct, Run: run.ID, Batch: b.ID}}
		for _, j := range all {
			e.must(e.Store.Postpone(e.ctx, j, now.Add(24*time.Hour)))
		}
		e.wantJobs(now)
		e.must(e.Store.ReleaseAll(e.ctx))
		e.wantJobs(now, all...)
	},
}

func (e *env) wantJobs(at time.Time, want ...consumers.Job) {
	e.Helper()
	e.equal("jobs due at "+at.Sub(now).String(), e.jobs(at), want)
}
