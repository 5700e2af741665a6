package consumertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

var runTests = map[string]func(*env){
	// Thinking-Sound-Lab/Invook-Email#5
	"of concurrent starts one starts the run": func(e *env) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		ids, starts := map[string]bool{}, 0
		for range 8 {
			wg.Go(func() {
				run, started, err := e.Store.StartRun(e.ctx, acct, consumers.RunImport, now)
				if err != nil {
					e.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ids[run.ID] = true
				if started {
					starts++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || starts != 1 {
			e.Errorf("%d runs, started %d times; want one, once", len(ids), starts)
		}
	},

	"a run sets the account's state": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		if s := e.account().State; s != consumers.Live {
			e.Errorf("after the import: %q", s)
		}
		e.started(consumers.RunResync, 300)
		if s := e.account().State; s != consumers.Resyncing {
			e.Errorf("in the resync: %q", s)
		}
	},

	"a run does not wake an account that has stopped": func(e *env) {
		_, err := e.Store.SetState(e.ctx, acct, consumers.Reauth, "grant revoked")
		e.must(err)
		run := e.started(consumers.RunImport, 100)
		e.list(run)
		_, err = e.Store.FinishRun(e.ctx, run.ID, now)
		e.must(err)
		if s := e.account().State; s != consumers.Reauth {
			e.Errorf("got %q, want reauth until somebody reconnects", s)
		}
	},

	"the baseline is pinned once and becomes the first cursor": func(e *env) {
		run := e.started(consumers.RunImport, 1700)
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 1800))
		if run = e.active(); run.Baseline != 1700 || e.account().Cursor != 1700 {
			e.Errorf("baseline %d, cursor %d; want 1700 for both", run.Baseline, e.account().Cursor)
		}
	},

	// kenn-io/msgvault#697
	"a resync's baseline replaces a cursor that was too old": func(e *env) {
		e.imported()
		e.started(consumers.RunResync, 5000)
		if c := e.account().Cursor; c != 5000 {
			e.Errorf("cursor %d, want 5000", c)
		}
	},

	"a resync is remembered until history was read, or the account stopped": func(e *env) {
		e.imported()
		for _, read := range []func(){
			func() { e.apply(consumers.HistoryStep{Cursor: 900}) },
			func() { e.must(e.Store.HistoryDone(e.ctx, acct, now, now)) },
			func() {
				for _, state := range []consumers.State{consumers.Stopped, consumers.Live} {
					_, err := e.Store.SetState(e.ctx, acct, state, "")
					e.must(err)
				}
			},
		} {
			run := e.started(consumers.RunResync, 300)
			e.list(run)
			_, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize)
			e.must(err)
			_, err = e.Store.FinishRun(e.ctx, run.ID, now)
			e.must(err)
			if at := e.account().ResyncAt; !at.Equal(now) {
				e.Errorf("resync at %v, want %v", at, now)
			}
			read()
			if at := e.account().ResyncAt; !at.IsZero() {
				e.Errorf("resync at %v though history was read, or the account stopped", at)
			}
		}
	},

	"a resync's baseline never moves the cursor back": func(e *env) {
		e.imported()
		e.apply(consumers.HistoryStep{Cursor: 5000})
		e.started(consumers.RunResync, 4990) // read before history had moved on
		if c := e.account().Cursor; c != 5000 {
			e.Errorf("cursor %d, want 5000", c)
		}
	},

	"history gives no account its first cursor": func(e *env) {
		e.apply(consumers.HistoryStep{Cursor: 120})
		if c := e.account().Cursor; c != 0 {
			e.Errorf("cursor %d, want none before a run has a baseline", c)
		}
	},

	// kenn-io/msgvault#697
	"a run without a baseline takes no page": func(e *env) {
		run, _, err := e.Store.StartRun(e.ctx, acct, consumers.RunImport, now)
		e.must(err)
		page := consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1)}}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		if e.active().Listed {
			e.Error("the run is listed")
		}
		e.equal("progress", e.progress(), consumers.Progress{})
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 100))
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		e.equal("progress with a baseline", e.progress(), consumers.Progress{Listed: 1, Open: 1, Pending: 1})
	},

	// relaticle/relaticle#640
	"a page handled twice is stored once": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		page := consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1), ref("t2", 2), ref("t3", 3), ref("t4", 4)}, Next: "p2"}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		if p := e.active(); p.PageToken != "p2" || p.Listed {
			e.Errorf("page token %q, listed %v; want p2, false", p.PageToken, p.Listed)
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 4, Open: 4, Pending: 2})
	},

	"a listing that begins again counts each thread once": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		page := consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1), ref("t2", 2)}, Next: "p2"}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		e.must(e.Store.Relist(e.ctx, run.ID, "p1")) // somebody else's token: it was replaced meanwhile
		if token := e.active().PageToken; token != "p2" {
			e.Errorf("page token %q, want p2", token)
		}
		e.must(e.Store.Relist(e.ctx, run.ID, "p2"))
		if token := e.active().PageToken; token != "" {
			e.Errorf("page token %q, want the first page's", token)
		}
		page = consumers.ThreadPage{Threads: append(page.Threads, ref("t3", 3))}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", page, batchSize))
		e.must(e.Store.Relist(e.ctx, run.ID, ""))
		if !e.active().Listed {
			e.Error("a complete listing began again")
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 3, Open: 3, Pending: 2})
	},

	"a page may be empty and not be the last": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Next: "p2"}, batchSize))
		e.must(e.Store.AddPage(e.ctx, run.ID, "p2", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1)}}, batchSize))
		run = e.active()
		if !run.Listed {
			e.Error("not listed after the page without a next one")
		}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t2", 1)}}, batchSize))
		e.equal("progress after a page too many", e.progress(), consumers.Progress{Listed: 1, Open: 1, Pending: 1})
	},

	// xynehq/xyne#71
	"a thread that new mail shifted onto a second page counts once": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1), ref("t2", 2)}, Next: "p2"}, batchSize))
		e.must(e.Store.AddPage(e.ctx, run.ID, "p2", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t2", 2), ref("t3", 3), ref("t3", 3)}}, batchSize))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 3, Open: 3, Pending: 2})
	},

	"no more batches are open than the window": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		var refs []consumers.ThreadRef
		for i := range 10 {
			refs = append(refs, ref(fmt.Sprintf("t%d", i), 1))
		}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: refs}, batchSize))
		first, err := e.Store.OpenBatches(e.ctx, run.ID, 2, now)
		e.must(err)
		again, err := e.Store.OpenBatches(e.ctx, run.ID, 2, now)
		e.must(err)
		if len(first) != 2 || len(again) != 0 {
			e.Fatalf("opened %d and then %d batches, want 2 and 0", len(first), len(again))
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 10, Open: 10, Pending: 2, Working: 2})
		for _, id := range first[0].Threads {
			e.must(e.Store.ThreadGone(e.ctx, first[0], id, now))
		}
		run, err = e.Store.FinishBatch(e.ctx, first[0])
		e.must(err)
		e.equal("progress that FinishBatch returns", run.Progress, consumers.Progress{Listed: 10, Gone: 3, Open: 7, Pending: 2, Working: 1})
		next := e.open(run)
		if len(next) != 2 {
			e.Errorf("opened %d batches, want the 2 that are left", len(next))
		}
	},

	"a batch holds only what is still to fetch": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90), ref("t2", 90), ref("t3", 90))[0]
		e.save(b, snapshot("t1", 90, msg("m1", 90)), true)
		e.must(e.Store.ThreadGone(e.ctx, b, "t3", now))
		got, ok, err := e.Store.Batch(e.ctx, acct, b.ID)
		e.must(err)
		if !ok {
			e.Fatal("the batch is not known")
		}
		e.equal("batch", got, consumers.Batch{ID: b.ID, Run: b.Run, Account: acct, Threads: []string{"t2"}})
		if _, err := e.Store.FinishBatch(e.ctx, b); err != nil {
			e.Fatal(err)
		}
		if _, ok, _ := e.Store.Batch(e.ctx, acct, b.ID); !ok {
			e.Error("FinishBatch closed a batch with a thread to fetch")
		}
		e.save(b, snapshot("t2", 90), true)
		if _, err := e.Store.FinishBatch(e.ctx, b); err != nil {
			e.Fatal(err)
		}
		if _, ok, _ := e.Store.Batch(e.ctx, acct, b.ID); ok {
			e.Error("a finished batch is still handed out")
		}
	},

	"a batch that is pending, or another account's, is not handed out": func(e *env) {
		e.must(e.AddAccount(e.ctx, "account-2", "bob@example.com"))
		run := e.started(consumers.RunImport, 100)
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1)}}, batchSize))
		for id := range int64(20) {
			if _, ok, err := e.Store.Batch(e.ctx, acct, id); ok || err != nil {
				e.Errorf("pending batch %d: ok %v, error %v", id, ok, err)
			}
		}
		b := e.open(run)[0]
		if _, ok, err := e.Store.Batch(e.ctx, "account-2", b.ID); ok || err != nil {
			e.Errorf("another account's batch: ok %v, error %v", ok, err)
		}
		other := b
		other.Account = "account-2"
		_, err := e.Store.SaveThread(e.ctx, other, snapshot("t1", 90, msg("m1", 90)), now)
		e.wantErr(err, consumers.ErrNoRun)
	},

	// relaticle/relaticle#640
	"a run with a thread given up is incomplete, never complete": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90), ref("t2", 90))[0]
		e.save(b, snapshot("t1", 90, msg("m1", 90)), true)
		for i := range 3 {
			if done, err := e.Store.FinishRun(e.ctx, run.ID, now); done || err != nil {
				e.Errorf("FinishRun with an open thread: %v, %v", done, err)
			}
			dead, err := e.Store.ThreadFailed(e.ctx, b, "t2", "500 backendError", 3, now)
			e.must(err)
			if dead != (i == 2) {
				e.Errorf("failure %d: dead = %v", i+1, dead)
			}
		}
		if dead, err := e.Store.ThreadFailed(e.ctx, b, "t2", "500 backendError", 3, now); dead || err != nil {
			e.Errorf("a thread is given up once; got %v, %v", dead, err)
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 2, Stored: 1, Failed: 1, Working: 1})
		done, err := e.Store.FinishRun(e.ctx, run.ID, now)
		e.must(err)
		a := e.account()
		if !done || a.State != consumers.Live || a.Reason != "incomplete: 1" || a.Failed != 1 {
			e.Errorf("finished %v, state %q, reason %q, failed %d", done, a.State, a.Reason, a.Failed)
		}
		letters, err := e.DeadLetters(e.ctx, acct)
		e.must(err)
		e.equal("dead letters", letters, []consumers.DeadLetter{{ID: letters[0].ID, Account: acct, Kind: consumers.ThreadBatch,
			Run: run.ID, ThreadID: "t2", Cause: "500 backendError", Attempts: 3, At: now}})
	},

	"a run finishes once, and only when all is accounted for": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		finish := func(want bool) {
			e.Helper()
			done, err := e.Store.FinishRun(e.ctx, run.ID, now)
			e.must(err)
			if done != want {
				e.Errorf("FinishRun = %v, want %v", done, want)
			}
		}
		finish(false) // not listed
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Next: "p2"}, batchSize))
		finish(false)
		e.must(e.Store.AddPage(e.ctx, run.ID, "p2", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 1)}}, batchSize))
		finish(false) // one open
		e.must(e.Store.ThreadGone(e.ctx, e.open(run)[0], "t1", now))
		finish(true)
		finish(false)
		_, err := e.Store.ActiveRun(e.ctx, acct)
		e.wantErr(err, consumers.ErrNoRun)
	},

	"late calls for a finished run change nothing": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90))[0]
		e.save(b, snapshot("t1", 90, msg("m1", 90, "INBOX")), true)
		_, err := e.Store.FinishRun(e.ctx, run.ID, now)
		e.must(err)
		e.save(b, snapshot("t1", 90, msg("m1", 90, "INBOX")), true)
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 900))
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t2", 1)}}, batchSize))
		if opened := e.open(run); len(opened) != 0 {
			e.Errorf("opened %d batches of a finished run", len(opened))
		}
		got, err := e.Store.FinishBatch(e.ctx, b)
		e.must(err)
		e.equal("progress", got.Progress, consumers.Progress{Listed: 1, Stored: 1})
		e.wantLabels(map[string][]string{"m1": {"INBOX"}})
	},

	"a resync fetches only what differs": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)), snapshot("t2", 91, msg("m2", 91)))
		run := e.started(consumers.RunResync, 300)
		batches := e.list(run, ref("t1", 90), ref("t2", 250), ref("t3", 260))
		if len(batches) != 1 {
			e.Fatalf("%d batches, want 1", len(batches))
		}
		e.equal("to fetch", batches[0].Threads, []string{"t3", "t2"})
		e.equal("progress", e.progress(), consumers.Progress{Listed: 3, Stored: 1, Open: 2, Working: 1})
	},

	"a record after the baseline does not prove a thread current": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90), msg("m2", 90)))
		run := e.started(consumers.RunResync, 300) // m2's change at 250 fell into the gap
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(310, consumers.LabelsAdded, "m1", "X")}, Cursor: 310})
		e.list(run, ref("t1", 310))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
	},

	"a record before the baseline does": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(210, consumers.LabelsAdded, "m1", "X")}, Cursor: 210})
		e.list(e.started(consumers.RunResync, 300), ref("t1", 210))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Stored: 1})
	},

	"a thread given up is fetched by the next run": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		run := e.started(consumers.RunResync, 300)
		b := e.list(run, ref("t1", 250))[0]
		if dead, err := e.Store.ThreadFailed(e.ctx, b, "t1", "500", 1, now); !dead || err != nil {
			e.Fatalf("ThreadFailed = %v, %v", dead, err)
		}
		if n, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize); n != 0 || err != nil {
			e.Errorf("QueueAbsent = %d, %v", n, err)
		}
		if done, err := e.Store.FinishRun(e.ctx, run.ID, now); !done || err != nil {
			e.Fatalf("FinishRun = %v, %v", done, err)
		}
		e.list(e.started(consumers.RunResync, 300), ref("t1", 90))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
	},

	"an import fetches everything": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		e.list(e.started(consumers.RunImport, 300), ref("t1", 90))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
	},

	"a resync fetches a thread whose messages are on the retry list": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		e.apply(consumers.HistoryStep{Cursor: 120,
			Changes: []consumers.Change{change(110, consumers.MessageAdded, "m2"), change(120, consumers.LabelsAdded, "m1", "X")},
			Retry:   []consumers.Fetch{{MessageID: "m2", ThreadID: "t1", HistoryID: 110, Attempts: 1, Due: now}}})
		e.list(e.started(consumers.RunResync, 300), ref("t1", 120))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
	},

	"a resync fetches a thread of which it has only a message": func(e *env) {
		run := e.started(consumers.RunResync, 100)
		m := msg("t1", 110) // an old thread's first message, stored because its labels changed
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{m}, Cursor: 110,
			Changes: []consumers.Change{change(110, consumers.LabelsAdded, "t1", "X")}})
		e.list(run, ref("t1", 110))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
	},

	// kenn-io/msgvault#697
	"a resync checks what a complete listing did not name": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)), snapshot("t2", 91, msg("m2", 91)), snapshot("t3", 92))
		run := e.started(consumers.RunResync, 300)
		queue := func(want int) {
			e.Helper()
			n, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize)
			e.must(err)
			if n != want {
				e.Errorf("QueueAbsent = %d, want %d", n, want)
			}
		}
		e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Threads: []consumers.ThreadRef{ref("t1", 90)}, Next: "p2"}, batchSize))
		queue(0) // half a list proves nothing
		e.must(e.Store.AddPage(e.ctx, run.ID, "p2", consumers.ThreadPage{}, batchSize))
		if done, err := e.Store.FinishRun(e.ctx, run.ID, now); done || err != nil {
			e.Errorf("FinishRun before the check: %v, %v", done, err)
		}
		queue(1) // t3 has no messages: there is nothing to check
		queue(0)
		e.equal("progress", e.progress(), consumers.Progress{Listed: 2, Stored: 1, Open: 1, Pending: 1})
		b := e.open(run)[0]
		e.must(e.Store.ThreadGone(e.ctx, b, "t2", now))
		if done, err := e.Store.FinishRun(e.ctx, run.ID, now); !done || err != nil {
			e.Errorf("FinishRun: %v, %v", done, err)
		}
		e.wantLabels(map[string][]string{"m1": nil})
	},

	"an import has nothing absent": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90)))
		run := e.started(consumers.RunImport, 300)
		e.list(run)
		if n, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize); n != 0 || err != nil {
			e.Errorf("QueueAbsent of an import: %d, %v", n, err)
		}
		if done, err := e.Store.FinishRun(e.ctx, run.ID, now.Add(time.Second)); !done || err != nil {
			e.Errorf("FinishRun: %v, %v", done, err)
		}
	},
}
