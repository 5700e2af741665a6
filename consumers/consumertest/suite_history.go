package consumertest

import (
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

var historyTests = map[string]func(*env){
	"label changes apply in order and only to rows that are older": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100, "INBOX", "UNREAD")))
		step := consumers.HistoryStep{Cursor: 130, Changes: []consumers.Change{
			change(90, consumers.LabelsAdded, "m1", "TOO_OLD"),
			change(110, consumers.LabelsAdded, "m1", "B", "A"),
			change(120, consumers.LabelsRemoved, "m1", "UNREAD", "B"),
			change(130, consumers.LabelsAdded, "m1", "B")}}
		for range 2 { // applying a step twice changes nothing
			e.apply(step)
			e.wantLabels(map[string][]string{"m1": {"A", "B", "INBOX"}})
		}
		got, err := e.Store.Messages(e.ctx, acct, []string{"m1", "m2"})
		e.must(err)
		e.equal("stored messages", got, map[string]consumers.HistoryID{"m1": 130})
	},

	// gauteh/lieer#36
	"both halves of one record apply": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100, "INBOX")))
		e.apply(consumers.HistoryStep{Cursor: 110, Changes: []consumers.Change{
			change(110, consumers.LabelsAdded, "m1", "TRASH"), change(110, consumers.LabelsRemoved, "m1", "INBOX")}})
		e.wantLabels(map[string][]string{"m1": {"TRASH"}})
	},

	"changes that a fetched message already has fall away": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		e.apply(consumers.HistoryStep{Cursor: 120, Messages: []consumers.Message{msg("m2", 120, "STARRED")}, Changes: []consumers.Change{
			change(110, consumers.MessageAdded, "m2"), change(115, consumers.LabelsAdded, "m2", "UNREAD"),
			change(117, consumers.LabelsRemoved, "m2", "UNREAD"), change(120, consumers.LabelsAdded, "m2", "STARRED")}})
		e.wantLabels(map[string][]string{"m1": nil, "m2": {"STARRED"}})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("a thread whose new message is stored is not complete")
		}
	},

	"what was added and deleted within a step leaves nothing open": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		e.apply(consumers.HistoryStep{Cursor: 120, Changes: []consumers.Change{
			change(110, consumers.MessageAdded, "m2"), change(115, consumers.LabelsAdded, "m2", "X"), change(120, consumers.MessageDeleted, "m2")}})
		e.wantLabels(map[string][]string{"m1": nil})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread waits for a message that is gone")
		}
		got, err := e.Store.Messages(e.ctx, acct, []string{"m2"})
		e.must(err)
		e.equal("a deleted message is known", got, map[string]consumers.HistoryID{"m2": 120})
	},

	// bulwarkmail/legacy-proxy#10
	"the cursor never moves back": func(e *env) {
		e.imported()
		for _, c := range []consumers.HistoryID{120, 110, 0, 120} {
			e.apply(consumers.HistoryStep{Cursor: c})
		}
		if c := e.account().Cursor; c != 120 {
			e.Errorf("cursor %d, want 120", c)
		}
	},

	"a new thread is complete with its first message": func(e *env) {
		e.imported()
		first := msg("t9", 110)
		first.ThreadID = "t9"
		c := consumers.Change{HistoryID: 110, Kind: consumers.MessageAdded, MessageID: "t9", ThreadID: "t9"}
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{first}, Changes: []consumers.Change{c}, Cursor: 110})
		if state, ok := e.thread("t9"); !ok || !state.Complete {
			e.Errorf("thread %+v, known %v; want it complete", state, ok)
		}
	},

	"a reply in a thread that was never stored does not complete it": func(e *env) {
		e.imported()
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 110)}, Cursor: 110,
			Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")}})
		if state, ok := e.thread("t1"); !ok || state.Complete {
			e.Errorf("thread %+v, known %v; want it known and not complete", state, ok)
		}
		if _, ok := e.thread("t7"); ok {
			e.Error("a thread that nobody named is known")
		}
	},

	"a thread fetched whole need not be fetched by the run": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90), ref("t2", 90))[0]
		if state, ok := e.thread("t1"); !ok || state != (consumers.ThreadState{Open: true}) {
			e.Errorf("a listed thread is %+v, known %v; want it open", state, ok)
		}
		e.apply(consumers.HistoryStep{Threads: []consumers.Thread{snapshot("t1", 110, msg("m1", 90), msg("m2", 110))}, Cursor: 110,
			Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")}})
		got, _, err := e.Store.Batch(e.ctx, acct, b.ID)
		e.must(err)
		e.equal("still to fetch", got.Threads, []string{"t2"})
		e.equal("progress", e.progress(), consumers.Progress{Listed: 2, Stored: 1, Open: 1, Working: 1})
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil})
	},

	// kenn-io/msgvault#260
	"what could not be fetched is on the retry list until it is": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		f := consumers.Fetch{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Attempts: 1, Due: now.Add(time.Minute), Cause: "503 backendError"}
		e.apply(consumers.HistoryStep{Cursor: 110, Retry: []consumers.Fetch{f}, Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")}})
		e.wantFetches(now)
		e.wantFetches(now.Add(time.Minute), f)
		if state, _ := e.thread("t1"); state.Complete {
			e.Error("the thread is complete without the message that is to be fetched")
		}
		f.Attempts, f.Due = 2, now.Add(2*time.Minute)
		e.apply(consumers.HistoryStep{Retry: []consumers.Fetch{f}})
		e.wantFetches(now.Add(time.Hour), f)
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 115)}, Fetched: []string{"m2"}})
		e.wantFetches(now.Add(time.Hour))
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread is not complete although nothing is missing")
		}
		e.apply(consumers.HistoryStep{Retry: []consumers.Fetch{f}}) // the first step comes again
		e.wantFetches(now.Add(time.Hour))
	},

	// dxos/dxos#12466
	"a message that stays away is gone": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		e.apply(consumers.HistoryStep{Cursor: 110, Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")},
			Retry: []consumers.Fetch{{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Attempts: 1, Due: now}}})
		e.apply(consumers.HistoryStep{Gone: []string{"m2"}})
		e.wantFetches(now.Add(time.Hour))
		e.wantLabels(map[string][]string{"m1": nil})
		got, err := e.Store.Messages(e.ctx, acct, []string{"m2"})
		e.must(err)
		e.equal("known as deleted", got, map[string]consumers.HistoryID{"m2": 110})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread waits for a message that is gone")
		}
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 110)}}) // it was only late
		e.wantLabels(map[string][]string{"m1": nil, "m2": nil})
	},

	"what is stored is not made gone by an older record": func(e *env) {
		e.imported(snapshot("t1", 120, msg("m1", 120)))
		e.apply(consumers.HistoryStep{Cursor: 110, Gone: []string{"m1"}, Changes: []consumers.Change{change(110, consumers.MessageAdded, "m1")}})
		e.wantLabels(map[string][]string{"m1": nil})
	},

	"a deletion takes a message off the retry list": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		e.apply(consumers.HistoryStep{Cursor: 110, Retry: []consumers.Fetch{{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Due: now}}})
		e.apply(consumers.HistoryStep{Cursor: 120, Changes: []consumers.Change{change(120, consumers.MessageDeleted, "m2")}})
		e.wantFetches(now.Add(time.Hour))
	},

	"a message that a run was to bring, and did not, is fetched alone": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		// The consumer sees the thread open and leaves m2 to the run, but an older snapshot settles it first.
		e.save(b, snapshot("t1", 90, msg("m1", 90)), true)
		e.apply(consumers.HistoryStep{Cursor: 110, Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2")}})
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		if len(due) != 1 || due[0].MessageID != "m2" || due[0].ThreadID != "t1" || due[0].HistoryID != 110 || due[0].Attempts != 0 {
			e.Errorf("retry list %+v, want m2", due)
		}
	},

	"a message given up leaves its thread incomplete": func(e *env) {
		e.imported(snapshot("t1", 100, msg("m1", 100)))
		c := change(110, consumers.MessageAdded, "m2")
		e.apply(consumers.HistoryStep{Cursor: 110, Changes: []consumers.Change{c},
			Retry: []consumers.Fetch{{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Attempts: 8, Due: now}}})
		e.apply(consumers.HistoryStep{Fetched: []string{"m2"}})
		e.wantFetches(now.Add(time.Hour))
		if state, _ := e.thread("t1"); state.Complete {
			e.Error("the thread is complete without the message that was given up")
		}
		e.apply(consumers.HistoryStep{Cursor: 120, Changes: []consumers.Change{change(120, consumers.MessageDeleted, "m2")}})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread waits for a message that was given up and is deleted")
		}
	},

	"the retry list gives the oldest first and no more than asked": func(e *env) {
		var retry []consumers.Fetch
		for i, id := range []string{"m3", "m1", "m2"} {
			retry = append(retry, consumers.Fetch{MessageID: id, ThreadID: "t1", HistoryID: 110, Attempts: 1, Due: now.Add(time.Duration(i) * time.Second)})
		}
		e.apply(consumers.HistoryStep{Retry: retry})
		due, err := e.Store.DueFetches(e.ctx, acct, now.Add(time.Minute), 2)
		e.must(err)
		e.equal("retry list", due, retry[:2])
	},
}

func (e *env) wantFetches(at time.Time, want ...consumers.Fetch) {
	e.Helper()
	due, err := e.Store.DueFetches(e.ctx, acct, at, 10)
	e.must(err)
	e.equal("retry list", due, want)
}
