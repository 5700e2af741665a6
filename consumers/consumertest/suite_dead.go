package consumertest

import (
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// letters returns the ids of the account's dead letters.
func (e *env) letters(want int) []int64 {
	e.Helper()
	letters, err := e.DeadLetters(e.ctx, acct)
	e.must(err)
	var ids []int64
	for _, d := range letters {
		ids = append(ids, d.ID)
	}
	a := e.account()
	if len(ids) != want || a.Failed != want {
		e.Fatalf("%d dead letters, the account counts %d; want %d", len(ids), a.Failed, want)
	}
	return ids
}

func (e *env) wantReason(want string) {
	e.Helper()
	if r := e.account().Reason; r != want {
		e.Errorf("reason %q, want %q", r, want)
	}
}

func (e *env) replay(want int, ids ...int64) {
	e.Helper()
	n, err := e.Store.ReplayDeadLetters(e.ctx, acct, ids, batchSize, now)
	e.must(err)
	if n != want {
		e.Errorf("%d replayed, want %d", n, want)
	}
}

// poisoned imports t1 and gives t2 up.
func (e *env) poisoned() {
	e.Helper()
	run := e.started(consumers.RunImport, 100)
	b := e.list(run, ref("t1", 90), ref("t2", 90))[0]
	e.save(b, snapshot("t1", 90, msg("m1", 90)), true)
	_, err := e.Store.ThreadFailed(e.ctx, b, "t2", "500 backendError", 1, now)
	e.must(err)
	_, err = e.Store.FinishBatch(e.ctx, b)
	e.must(err)
	done, err := e.Store.FinishRun(e.ctx, run.ID, now)
	e.must(err)
	if !done {
		e.Fatal("the run did not finish")
	}
}

// poisonedMessage imports t1 and gives up m2, which history named at 110.
func (e *env) poisonedMessage() {
	e.Helper()
	e.imported(snapshot("t1", 100, msg("m1", 100)))
	e.apply(consumers.HistoryStep{Cursor: 110, Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")}, Fetched: []string{"m2"}})
	e.must(e.Store.AddDeadLetter(e.ctx, consumers.DeadLetter{Account: acct, Kind: consumers.History, ThreadID: "t1", MessageID: "m2",
		Cause: "400", Attempts: 8, At: now}))
}

var deadTests = map[string]func(*env){
	"a letter about the same work is brought up to date": func(e *env) {
		for i := range 3 {
			for _, d := range []consumers.DeadLetter{{MessageID: "m1", ThreadID: "t1"}, {ThreadID: "t1"}, {Run: "r1"}} {
				d.Account, d.Kind, d.Attempts, d.At = acct, consumers.History, i, now
				e.must(e.Store.AddDeadLetter(e.ctx, d))
			}
		}
		e.letters(3)
		letters, err := e.DeadLetters(e.ctx, acct)
		e.must(err)
		for _, d := range letters {
			if d.Attempts != 2 {
				e.Errorf("%+v, want the newest attempts", d)
			}
		}
	},

	"a replayed thread is fetched by a run of its own": func(e *env) {
		e.poisoned()
		e.wantReason("incomplete: 1")
		e.replay(1, e.letters(1)...)
		e.letters(0)
		e.wantReason("")
		run := e.active()
		if run.Kind != consumers.RunReplay || !run.Listed || e.account().State != consumers.Live {
			e.Errorf("run %+v of an account that is %s", run, e.account().State)
		}
		e.wantJobs(now, consumers.Job{Kind: consumers.History, Account: acct}, consumers.Job{Kind: consumers.InitialSync, Account: acct, Run: run.ID})
		b := e.open(run)[0]
		e.equal("to fetch", b.Threads, []string{"t2"})
		if dead, err := e.Store.ThreadFailed(e.ctx, b, "t2", "500", 2, now); dead || err != nil {
			e.Errorf("the attempts of before count: %v, %v", dead, err)
		}
		e.save(b, snapshot("t2", 90, consumers.Message{ID: "m2", HistoryID: 90}), true)
		if done, err := e.Store.FinishRun(e.ctx, run.ID, now); !done || err != nil {
			e.Errorf("FinishRun: %v, %v", done, err)
		}
		if c := e.account().Cursor; c != 100 {
			e.Errorf("cursor %d, want 100 as before", c)
		}
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil})
	},

	"a stale snapshot of a replayed thread deletes no newer mail": func(e *env) {
		e.poisoned()
		e.apply(consumers.HistoryStep{Cursor: 120, Messages: []consumers.Message{{ID: "m3", ThreadID: "t2", HistoryID: 85},
			{ID: "m4", ThreadID: "t2", HistoryID: 120}}})
		e.replay(1, e.letters(1)...)
		b := e.open(e.active())[0]
		stale := snapshot("t2", 90, consumers.Message{ID: "m2", HistoryID: 90})
		e.save(b, stale, true)
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil, "m4": nil}) // m3 is older than the snapshot
		e.must(e.Store.AcceptThread(e.ctx, b, stale, now))
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil, "m4": nil})
	},

	"a replayed thread joins the active run": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90), ref("t2", 90))[0]
		_, err := e.Store.ThreadFailed(e.ctx, b, "t2", "500", 1, now)
		e.must(err)
		e.must(e.Store.AddDeadLetter(e.ctx, consumers.DeadLetter{Account: acct, Kind: consumers.ThreadBatch, ThreadID: "t3", At: now}))
		e.replay(2, e.letters(2)...)
		e.equal("progress", e.progress(), consumers.Progress{Listed: 3, Open: 3, Pending: 1, Working: 1})
		e.equal("to fetch", e.open(run)[0].Threads, []string{"t3", "t2"})
	},

	"a replayed message is on the retry list": func(e *env) {
		e.poisonedMessage()
		e.wantReason("incomplete: 1")
		e.must(e.Store.HistoryDone(e.ctx, acct, now, now.Add(time.Hour)))
		e.replay(1, e.letters(1)...)
		e.letters(0)
		e.wantFetches(now, consumers.Fetch{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Due: now, Cause: "replayed"})
		e.wantJobs(now, consumers.Job{Kind: consumers.History, Account: acct})
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 110)}, Fetched: []string{"m2"}})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread is not complete although nothing is missing")
		}
	},

	"a message that is stored, or deleted, needs no letter": func(e *env) {
		e.poisonedMessage()
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 110)}})
		e.letters(0)
		e.wantReason("")
		e.apply(consumers.HistoryStep{Cursor: 120, Changes: []consumers.Change{change(120, consumers.MessageAdded, "m3")}, Fetched: []string{"m3"}})
		e.must(e.Store.AddDeadLetter(e.ctx, consumers.DeadLetter{Account: acct, Kind: consumers.History, ThreadID: "t1", MessageID: "m3", At: now}))
		e.apply(consumers.HistoryStep{Cursor: 130, Changes: []consumers.Change{change(130, consumers.MessageDeleted, "m3")}})
		e.letters(0)
	},

	"a resync that stores a thread removes its letter": func(e *env) {
		e.poisoned()
		b := e.list(e.started(consumers.RunResync, 300), ref("t1", 90), ref("t2", 90))[0]
		e.letters(1)
		e.save(b, snapshot("t2", 90), true)
		e.letters(0)
	},

	"a thread that is gone needs no letter": func(e *env) {
		e.poisoned()
		b := e.list(e.started(consumers.RunResync, 300), ref("t1", 90), ref("t2", 90))[0]
		e.must(e.Store.ThreadGone(e.ctx, b, "t2", now))
		e.letters(0)
	},

	"a letter of what was stored meanwhile is only removed": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		for _, d := range []consumers.DeadLetter{{ThreadID: "t1"}, {ThreadID: "t1", MessageID: "m1"}} {
			d.Account, d.Kind, d.At = acct, consumers.ThreadBatch, now
			e.must(e.Store.AddDeadLetter(e.ctx, d))
		}
		e.replay(0, e.letters(2)...)
		e.letters(0)
		_, err := e.Store.ActiveRun(e.ctx, acct)
		e.wantErr(err, consumers.ErrNoRun)
		e.wantFetches(now)
	},

	"a replayed job is due at once": func(e *env) {
		e.imported()
		history := consumers.Job{Kind: consumers.History, Account: acct}
		e.must(e.Store.AddDeadLetter(e.ctx, consumers.DeadLetter{Account: acct, Kind: consumers.History, Cause: "panic", At: now}))
		e.must(e.Store.Postpone(e.ctx, history, now.Add(24*time.Hour)))
		e.wantReason("") // nothing of the mirror is missing
		e.replay(1, e.letters(1)...)
		e.wantJobs(now, history)
	},

	"a dropped letter is forgotten, and its thread fetched by the next resync": func(e *env) {
		e.poisoned()
		e.must(e.AddAccount(e.ctx, "account-2", "bob@example.com"))
		ids := e.letters(1)
		if n, err := e.Store.DropDeadLetters(e.ctx, "account-2", ids); n != 0 || err != nil {
			e.Errorf("another account's letter: %d, %v", n, err)
		}
		if n, err := e.Store.DropDeadLetters(e.ctx, acct, ids); n != 1 || err != nil {
			e.Errorf("dropped %d, %v", n, err)
		}
		e.letters(0)
		e.wantReason("")
		e.replay(0, ids...)
		e.equal("to fetch", e.list(e.started(consumers.RunResync, 300), ref("t1", 90), ref("t2", 90))[0].Threads, []string{"t2"})
	},
}
