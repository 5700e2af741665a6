package consumertest

import (
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

var accountTests = map[string]func(*env){
	"a new account is importing and has nothing": func(e *env) {
		e.equal("account", e.account(), consumers.Account{ID: acct, Address: "ann@example.com", State: consumers.Importing})
	},

	"every method says what is missing": func(e *env) {
		s, b := e.Store, consumers.Batch{ID: 1, Run: "no-run", Account: acct}
		noAccount := map[string]error{}
		_, noAccount["Account"] = s.Account(e.ctx, "nobody")
		_, noAccount["SetState"] = s.SetState(e.ctx, "nobody", consumers.Live, "")
		noAccount["SetWatch"] = s.SetWatch(e.ctx, "nobody", consumers.Watch{})
		noAccount["SaveLabels"] = s.SaveLabels(e.ctx, "nobody", nil, now)
		_, noAccount["SetScope"] = s.SetScope(e.ctx, "nobody", consumers.Scope{NoSpam: true}, now)
		_, _, noAccount["StartRun"] = s.StartRun(e.ctx, "nobody", consumers.RunImport, now)
		_, noAccount["ActiveRun"] = s.ActiveRun(e.ctx, "nobody")
		_, _, noAccount["Batch"] = s.Batch(e.ctx, "nobody", 1)
		_, noAccount["Messages"] = s.Messages(e.ctx, "nobody", []string{"m1"})
		_, noAccount["Threads"] = s.Threads(e.ctx, "nobody", []string{"t1"})
		noAccount["ApplyHistory"] = s.ApplyHistory(e.ctx, "nobody", consumers.HistoryStep{}, now)
		_, noAccount["DueFetches"] = s.DueFetches(e.ctx, "nobody", now, 10)
		noAccount["HistoryDone"] = s.HistoryDone(e.ctx, "nobody", now, now)
		noAccount["AddDeadLetter"] = s.AddDeadLetter(e.ctx, consumers.DeadLetter{Account: "nobody"})
		noAccount["Postpone"] = s.Postpone(e.ctx, consumers.Job{Kind: consumers.History, Account: "nobody"}, now)
		for method, err := range noAccount {
			e.Log(method)
			e.wantErr(err, consumers.ErrNoAccount)
		}
		noRun := map[string]error{}
		_, noRun["ActiveRun"] = s.ActiveRun(e.ctx, acct)
		noRun["PinBaseline"] = s.PinBaseline(e.ctx, "no-run", 1)
		noRun["AddPage"] = s.AddPage(e.ctx, "no-run", "", consumers.ThreadPage{}, batchSize)
		noRun["Relist"] = s.Relist(e.ctx, "no-run", "p")
		_, noRun["QueueAbsent"] = s.QueueAbsent(e.ctx, "no-run", batchSize)
		_, noRun["OpenBatches"] = s.OpenBatches(e.ctx, "no-run", 1, now)
		_, noRun["SaveThread"] = s.SaveThread(e.ctx, b, snapshot("t1", 1), now)
		noRun["AcceptThread"] = s.AcceptThread(e.ctx, b, snapshot("t1", 1), now)
		noRun["ThreadGone"] = s.ThreadGone(e.ctx, b, "t1", now)
		_, noRun["ThreadFailed"] = s.ThreadFailed(e.ctx, b, "t1", "x", 3, now)
		_, noRun["FinishBatch"] = s.FinishBatch(e.ctx, b)
		_, noRun["FinishRun"] = s.FinishRun(e.ctx, "no-run", now)
		for method, err := range noRun {
			e.Log(method)
			e.wantErr(err, consumers.ErrNoRun)
		}
	},

	"an account that stops has no watch any more": func(e *env) {
		e.must(e.Store.SetWatch(e.ctx, acct, consumers.Watch{HistoryID: 500, Expires: now.Add(24 * time.Hour)}))
		for _, state := range []consumers.State{consumers.Reauth, consumers.Live} {
			_, err := e.Store.SetState(e.ctx, acct, state, "")
			e.must(err)
		}
		if at := e.account().WatchExpires; !at.IsZero() {
			e.Errorf("after reconnecting its watch expires at %v; Gmail ended it with the grant", at)
		}
	},

	"a state is set once": func(e *env) {
		for i, want := range []bool{true, false} {
			changed, err := e.Store.SetState(e.ctx, acct, consumers.Reauth, "grant revoked")
			e.must(err)
			if changed != want {
				e.Errorf("SetState number %d: changed = %v, want %v", i+1, changed, want)
			}
		}
		if a := e.account(); a.State != consumers.Reauth || a.Reason != "grant revoked" {
			e.Errorf("got state %q, reason %q", a.State, a.Reason)
		}
	},

	// elie222/inbox-zero#2980
	"a watch is noted and never moves the cursor": func(e *env) {
		expires := now.Add(7 * 24 * time.Hour)
		e.must(e.Store.SetWatch(e.ctx, acct, consumers.Watch{HistoryID: 500, Expires: expires}))
		if a := e.account(); !a.WatchExpires.Equal(expires) || a.Cursor != 0 {
			e.Errorf("got expiry %v and cursor %d, want %v and 0", a.WatchExpires, a.Cursor, expires)
		}
		e.must(e.Store.SetWatch(e.ctx, acct, consumers.Watch{}))
		if a := e.account(); !a.WatchExpires.IsZero() {
			e.Errorf("no watch, but it expires at %v", a.WatchExpires)
		}
	},

	"labels are replaced": func(e *env) {
		inbox, work := consumers.Label{ID: "INBOX", Name: "INBOX", Type: "system"}, consumers.Label{ID: "L1", Name: "Work", Type: "user"}
		e.must(e.Store.SaveLabels(e.ctx, acct, []consumers.Label{work, inbox}, now))
		work.Name = "Job"
		e.must(e.Store.SaveLabels(e.ctx, acct, []consumers.Label{work, {ID: "L2", Name: "New", Type: "user"}}, now))
		got, err := e.Labels(e.ctx, acct)
		e.must(err)
		e.equal("labels", got, []consumers.Label{work, {ID: "L2", Name: "New", Type: "user"}})
	},

	// erikdarlingdata/PerformanceMonitor#1801
	"writers in opposite orders never fail": func(e *env) {
		a, b := consumers.Label{ID: "A"}, consumers.Label{ID: "B"}
		var wg sync.WaitGroup
		for _, labels := range [][]consumers.Label{{a, b}, {b, a}} {
			wg.Go(func() {
				for range 200 {
					if err := e.Store.SaveLabels(e.ctx, acct, labels, now); err != nil {
						e.Error(err)
						return
					}
					step := consumers.HistoryStep{}
					for _, l := range labels {
						m := msg("m"+l.ID, 200)
						m.ThreadID = "t" + l.ID
						step.Messages = append(step.Messages, m)
					}
					if err := e.Store.ApplyHistory(e.ctx, acct, step, now); err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	},

	"dead letters are kept and counted": func(e *env) {
		d := consumers.DeadLetter{Account: acct, Kind: consumers.History, MessageID: "m1", ThreadID: "t1", Cause: "500 backendError", Attempts: 8, At: now}
		e.must(e.Store.AddDeadLetter(e.ctx, d))
		got, err := e.DeadLetters(e.ctx, acct)
		e.must(err)
		if len(got) != 1 || got[0].ID == 0 {
			e.Fatalf("got %+v, want one dead letter with an id", got)
		}
		d.ID = got[0].ID
		e.equal("dead letter", got[0], d)
		if n := e.account().Failed; n != 1 {
			e.Errorf("account counts %d failed, want 1", n)
		}
	},
}
