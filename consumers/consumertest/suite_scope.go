package consumertest

import "github.com/gmailsync/gmailsync/consumers"

// scopeTests: what is outside the scope is known by its labels alone, whichever way it came.
//
// rtCamp/frappe-gmail-thread#28, #37; twentyhq/twenty#22889
var scopeTests = map[string]func(*env){
	"an import stores of what is outside the labels only": func(e *env) {
		e.scoped(consumers.Scope{LabelsOut: []string{"A"}, NoTrash: true})
		e.imported(snapshot("t1", 50, msg("m1", 40, "A", "INBOX"), msg("m2", 45, "INBOX"), msg("m3", 50, "TRASH")))
		e.wantLabels(map[string][]string{"m2": {"INBOX"}})
		have, err := e.Store.Messages(e.ctx, acct, []string{"m1", "m2", "m3"})
		e.must(err)
		e.equal("stored", have, map[string]consumers.HistoryID{"m1": 40, "m2": 45, "m3": 50})
	},
	"a message that leaves loses its content, and one that enters is to be fetched": func(e *env) {
		e.scoped(consumers.Scope{NoTrash: true})
		e.imported(snapshot("t1", 50, msg("m1", 40, "INBOX"), msg("m2", 50, "TRASH")))
		e.apply(consumers.HistoryStep{Cursor: 101, Changes: []consumers.Change{
			change(101, consumers.LabelsAdded, "m1", "TRASH"), change(101, consumers.LabelsRemoved, "m2", "TRASH"),
		}})
		e.wantLabels(map[string][]string{})
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		if len(due) != 1 || due[0].MessageID != "m2" || due[0].HistoryID != 101 {
			e.Errorf("retry list %+v, want m2 at 101", due)
		}
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m2", 101, "INBOX")}, Fetched: []string{"m2"}})
		e.apply(consumers.HistoryStep{Cursor: 102, Changes: []consumers.Change{change(102, consumers.LabelsRemoved, "m1", "TRASH")}})
		e.wantLabels(map[string][]string{"m2": {"INBOX"}})
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m1", 102, "INBOX")}, Fetched: []string{"m1"}})
		e.wantLabels(map[string][]string{"m1": {"INBOX"}, "m2": {"INBOX"}})
	},
	"label changes of a message that stays outside ask for no fetch": func(e *env) {
		e.scoped(consumers.Scope{LabelsIn: []string{"INBOX"}})
		e.imported(snapshot("t1", 50, msg("m1", 50, "A")))
		e.apply(consumers.HistoryStep{Cursor: 101, Changes: []consumers.Change{change(101, consumers.LabelsAdded, "m1", "UNREAD")}})
		e.apply(consumers.HistoryStep{Cursor: 102, Changes: []consumers.Change{change(102, consumers.MessageDeleted, "m1")}})
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		e.equal("retry list", due, []consumers.Fetch(nil))
	},
	"a new scope applies to what is stored and has the mailbox compared": func(e *env) {
		e.imported(snapshot("t1", 50, msg("m1", 40, "INBOX"), msg("m2", 50, "SPAM")), thread2(60, "INBOX"))
		e.scoped(consumers.Scope{NoSpam: true})
		e.wantLabels(map[string][]string{"m1": {"INBOX"}, "m9": {"INBOX"}})
		run := e.active()
		if run.Kind != consumers.RunResync || e.account().State != consumers.Resyncing {
			e.Errorf("run %+v of an account that is %s, want a resync", run, e.account().State)
		}
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 100))
		e.equal("batches for threads that did not change", e.list(run, ref("t2", 60), ref("t1", 50)), []consumers.Batch(nil))
		e.scoped(consumers.Scope{}) // in mid-run: what the old scope left out is fetched
		run = e.active()
		e.must(e.Store.PinBaseline(e.ctx, run.ID, 100))
		for _, b := range e.list(run, ref("t2", 60), ref("t1", 50)) {
			e.equal("to fetch", b.Threads, []string{"t1"})
			e.save(b, snapshot("t1", 50, msg("m1", 40, "INBOX"), msg("m2", 50, "SPAM")), true)
		}
		e.wantLabels(map[string][]string{"m1": {"INBOX"}, "m2": {"SPAM"}, "m9": {"INBOX"}})
	},
	"the same scope again changes nothing": func(e *env) {
		e.imported(snapshot("t1", 50, msg("m1", 40, "INBOX")))
		changed, err := e.Store.SetScope(e.ctx, acct, consumers.Scope{}, now)
		e.must(err)
		_, err = e.Store.ActiveRun(e.ctx, acct)
		e.wantErr(err, consumers.ErrNoRun)
		if changed {
			e.Error("the scope of a new account is not everything")
		}
	},
	"a label that gets a configured name is the one that is meant": func(e *env) {
		e.scoped(consumers.Scope{LabelsOut: []string{"Private"}})
		e.imported(snapshot("t1", 50, msg("m1", 40, "L7"), msg("m2", 50, "INBOX")))
		e.must(e.Store.SaveLabels(e.ctx, acct, []consumers.Label{{ID: "L7", Name: "private", Type: "user"}}, now))
		e.wantLabels(map[string][]string{"m2": {"INBOX"}})
		if got := e.active().Kind; got != consumers.RunResync {
			e.Errorf("a %s follows, want a resync", got)
		}
	},
	"a resync removes what the query does not find any more": func(e *env) {
		e.scoped(consumers.Scope{Query: "newer_than:1y"})
		e.imported(snapshot("t1", 50, msg("m1", 50, "INBOX")), thread2(60, "INBOX"))
		run := e.started(consumers.RunResync, 200)
		e.apply(consumers.HistoryStep{Cursor: 201, Changes: []consumers.Change{change(201, consumers.LabelsAdded, "m1", "A")}})
		e.list(run)
		queued, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize)
		e.must(err)
		if queued != 1 {
			e.Errorf("%d threads to check, want 1: the one that changed since the baseline", queued)
		}
		if _, known := e.thread("t2"); known {
			e.Error("the thread that the query did not find is still known")
		}
	},
	"a label change brings nothing in that the query left out": func(e *env) {
		e.scoped(consumers.Scope{Query: "newer_than:1y"})
		e.imported(thread2(60, "INBOX"))
		e.apply(consumers.HistoryStep{Cursor: 101, Changes: []consumers.Change{change(101, consumers.LabelsAdded, "m1", "A")}})
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		e.equal("retry list", due, []consumers.Fetch(nil))
		e.apply(consumers.HistoryStep{Cursor: 102, Changes: []consumers.Change{change(102, consumers.MessageAdded, "m2")}})
		due, err = e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		if len(due) != 1 || due[0].MessageID != "m2" {
			e.Errorf("retry list %+v, want the new m2", due)
		}
	},
	"a step that a resync has overtaken is not stored": func(e *env) {
		e.imported(snapshot("t1", 50, msg("m1", 50, "INBOX")))
		run := e.started(consumers.RunResync, 200)
		stale := consumers.HistoryStep{Start: 150, Messages: []consumers.Message{msg("m2", 160, "INBOX")}, Cursor: 250}
		e.wantErr(e.Store.ApplyHistory(e.ctx, acct, stale, now), consumers.ErrOvertaken)
		e.wantLabels(map[string][]string{"m1": {"INBOX"}})
		e.equal("cursor", e.account().Cursor, consumers.HistoryID(200))
		for _, b := range e.list(run, ref("t1", 50)) {
			e.Errorf("batch %+v", b)
		}
	},
	"a label change over a gap that a resync has left asks for a fetch": func(e *env) {
		e.imported(snapshot("t1", 50, msg("m1", 50, "INBOX")))
		e.started(consumers.RunResync, 200) // a record between 50 and 200 may never be read
		e.apply(consumers.HistoryStep{Start: 200, Cursor: 201, Changes: []consumers.Change{change(201, consumers.LabelsAdded, "m1", "A")}})
		have, err := e.Store.Messages(e.ctx, acct, []string{"m1"})
		e.must(err)
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		if len(have) != 0 || len(due) != 1 || due[0].MessageID != "m1" {
			e.Errorf("stored %v, retry list %+v; want m1 to be fetched", have, due)
		}
	},
}

func (e *env) scoped(s consumers.Scope) {
	e.Helper()
	changed, err := e.Store.SetScope(e.ctx, acct, s, now)
	e.must(err)
	if got := e.account().Scope; !changed || !got.Equal(s) {
		e.Errorf("scope %+v after SetScope, changed %v; want %+v", got, changed, s)
	}
}

// thread2 is a thread t2 with one message m9.
func thread2(h consumers.HistoryID, labels ...string) consumers.Thread {
	m := msg("m9", h, labels...)
	m.ThreadID = "t2"
	return snapshot("t2", h, m)
}
