package consumertest

import (
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

var threadTests = map[string]func(*env){
	"a message is stored whole": func(e *env) {
		m := consumers.Message{ID: "m1", ThreadID: "t1", HistoryID: 18446744073709551615, InternalDate: now, Size: 4711,
			Labels: []string{"INBOX", "Label_1"}, Snippet: "Grüße 🎉", RFCMessageID: "a@b", From: "Ann <ann@example.com>",
			To: "b", Cc: "c", Subject: "s", Date: time.Date(1969, 1, 2, 3, 4, 5, 0, time.UTC), Text: "text\n", HTML: "<p>", BodyMissing: true,
			Cleaned: true, Raw: []byte(`{"payload":{}}` + strings.Repeat("x", 5000)),
			Attachments: []consumers.Attachment{{PartID: "1", Filename: "a.pdf", MIMEType: "application/pdf", ContentID: "cid", Inline: true, Size: 12},
				{PartID: "2", Filename: "b"}}}
		bare := consumers.Message{ID: "m2", ThreadID: "t1", HistoryID: 1}
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", m.HistoryID))[0]
		e.save(b, snapshot("t1", m.HistoryID, m, bare), true)
		live, err := e.Live(e.ctx, acct)
		e.must(err)
		e.equal("stored", live, []consumers.Message{m, bare})
	},

	// LogicLabs-OU/OpenArchiver#479, twentyhq/twenty#13366
	"text that cannot be stored is cleaned and never fails its neighbors": func(e *env) {
		bad := msg("m2", 90, "INBOX")
		bad.Subject, bad.Text, bad.From, bad.HTML = "x\x00", "caf\xe9", "\xed\xa0\x80", "ok"
		bad.Attachments = []consumers.Attachment{{PartID: "1", Filename: "a\x00.pdf"}}
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.save(b, snapshot("t1", 90, msg("m1", 90), bad, msg("m3", 90)), true)
		e.wantLabels(map[string][]string{"m1": nil, "m2": {"INBOX"}, "m3": nil})
	},

	"a snapshot twice is one": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		for range 2 {
			e.save(b, snapshot("t1", 90, msg("m1", 90, "INBOX"), msg("m2", 80)), true)
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Stored: 1, Working: 1})
		e.wantLabels(map[string][]string{"m1": {"INBOX"}, "m2": nil})
	},

	"history ids compare as numbers over their whole range": func(e *env) {
		ids := []consumers.HistoryID{999, 1000, 1 << 53, 1<<53 + 1, 1 << 63, 18446744073709551615}
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		for i, h := range ids {
			m := msg("m1", h)
			m.Labels = []string{h.String()}
			e.save(b, snapshot("t1", h, m), true)
			for _, older := range ids[:i] {
				e.save(b, snapshot("t1", older, msg("m1", older, "old")), true)
			}
			e.wantLabels(map[string][]string{"m1": {h.String()}})
			e.apply(consumers.HistoryStep{Cursor: h})
			e.apply(consumers.HistoryStep{Cursor: h - 1})
			if c := e.account().Cursor; c != h {
				e.Errorf("cursor %d, want %d", c, h)
			}
		}
	},

	// onyx-dot-app/onyx#5948
	"an outline completes a thread whose messages are stored, and says which are gone": func(e *env) {
		outline := func(h consumers.HistoryID, messages ...consumers.Message) consumers.Thread {
			t := snapshot("t1", h, messages...)
			t.Outline = true
			return t
		}
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m1", 90, "A"), msg("m2", 90, "B")}})
		e.save(b, outline(95, msg("m1", 90), msg("m2", 90), msg("m3", 95)), false) // m3 is not stored
		e.save(b, outline(95, msg("m1", 95), msg("m2", 90)), false)                // m1 is too old
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Open: 1, Working: 1})
		e.save(b, outline(95, msg("m1", 90)), true) // m2 is gone
		e.wantLabels(map[string][]string{"m1": {"A"}})
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Stored: 1, Working: 1})
	},

	"an older snapshot leaves newer rows alone": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.save(b, snapshot("t1", 200, msg("m1", 200, "NEW"), msg("m2", 150, "SAME")), true)
		e.save(b, snapshot("t1", 150, msg("m1", 120, "OLD"), msg("m2", 150, "SAME")), true)
		e.wantLabels(map[string][]string{"m1": {"NEW"}, "m2": {"SAME"}})
	},

	"what a snapshot lacks is deleted unless it is newer": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.save(b, snapshot("t1", 120, msg("m1", 90), msg("m2", 110), msg("m3", 120)), true)
		e.apply(consumers.HistoryStep{Messages: []consumers.Message{msg("m4", 140)}, Cursor: 140,
			Changes: []consumers.Change{change(140, consumers.MessageAdded, "m4")}})
		e.save(b, snapshot("t1", 130, msg("m1", 90)), true)
		e.wantLabels(map[string][]string{"m1": nil, "m4": nil})
		e.save(b, snapshot("t1", 120, msg("m1", 90), msg("m2", 110), msg("m3", 120)), true)
		e.wantLabels(map[string][]string{"m1": nil, "m4": nil}) // the older one brings nothing back
	},

	// gauteh/lieer#36
	"the last message gone is the thread gone": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90), msg("m2", 90)))
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(110, consumers.MessageDeleted, "m1")}, Cursor: 110})
		e.wantLabels(map[string][]string{"m2": nil})
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(120, consumers.MessageDeleted, "m2")}, Cursor: 120})
		e.wantLabels(nil)
		run := e.started(consumers.RunResync, 300)
		e.list(run)
		if n, err := e.Store.QueueAbsent(e.ctx, run.ID, batchSize); n != 0 || err != nil {
			e.Errorf("a deleted thread is looked for: %d, %v", n, err)
		}
	},

	// gauteh/lieer#36
	"trashing relabels, it does not delete": func(e *env) {
		e.imported(snapshot("t1", 90, msg("m1", 90, "INBOX"), msg("m2", 90, "INBOX"), msg("m3", 90, "INBOX")))
		var trash []consumers.Change
		for i, id := range []string{"m1", "m2", "m3"} {
			h := consumers.HistoryID(110 + i)
			trash = append(trash, change(h, consumers.LabelsAdded, id, "TRASH"), change(h, consumers.LabelsRemoved, id, "INBOX"))
		}
		e.apply(consumers.HistoryStep{Changes: trash, Cursor: 112})
		e.wantLabels(map[string][]string{"m1": {"TRASH"}, "m2": {"TRASH"}, "m3": {"TRASH"}})
		e.apply(consumers.HistoryStep{Cursor: 122, Changes: []consumers.Change{
			change(120, consumers.LabelsAdded, "m1", "INBOX"), change(120, consumers.LabelsRemoved, "m1", "TRASH"),
			change(121, consumers.MessageDeleted, "m2"), change(122, consumers.MessageDeleted, "m3")}})
		e.wantLabels(map[string][]string{"m1": {"INBOX"}})
	},

	"a thread gone takes its messages along": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 120), ref("t2", 120))[0]
		e.save(b, snapshot("t1", 120, msg("m1", 120), msg("m2", 110)), true)
		e.must(e.Store.ThreadGone(e.ctx, b, "t1", now)) // settled already: not counted again
		e.must(e.Store.ThreadGone(e.ctx, b, "t2", now)) // never stored
		e.wantLabels(nil)
		e.equal("progress", e.progress(), consumers.Progress{Listed: 2, Stored: 1, Gone: 1, Working: 1})
		e.save(b, snapshot("t1", 115, msg("m1", 100), msg("m2", 100)), true)
		e.wantLabels(nil) // an older snapshot brings nothing back
	},

	"a snapshot older than what history named is not complete": func(e *env) {
		for _, kind := range []consumers.ChangeKind{consumers.LabelsAdded, consumers.MessageAdded} {
			id := "t-" + string(kind)
			run, _, err := e.Store.StartRun(e.ctx, acct, consumers.RunImport, now)
			e.must(err)
			if run.Baseline == 0 {
				e.must(e.Store.PinBaseline(e.ctx, run.ID, 100))
				e.must(e.Store.AddPage(e.ctx, run.ID, "", consumers.ThreadPage{Next: "more", Threads: []consumers.ThreadRef{
					ref("t-"+string(consumers.LabelsAdded), 90), ref("t-"+string(consumers.MessageAdded), 90)}}, 1))
			}
			b := consumers.Batch{Run: run.ID, Account: acct}
			e.open(run)
			c := consumers.Change{HistoryID: 110, Kind: kind, MessageID: "new-" + id, ThreadID: id, Labels: []string{"X"}}
			e.apply(consumers.HistoryStep{Changes: []consumers.Change{c}, Cursor: 110})
			old := consumers.Message{ID: "old-" + id, HistoryID: 90}
			e.save(b, snapshot(id, 109, old), false)
			if state, _ := e.thread(id); state != (consumers.ThreadState{Open: true}) {
				e.Errorf("%s: after a stale snapshot the thread is %+v, want it open", kind, state)
			}
			e.save(b, snapshot(id, 110, old, consumers.Message{ID: "new-" + id, HistoryID: 110}), true)
			if state, _ := e.thread(id); state != (consumers.ThreadState{Complete: true}) {
				e.Errorf("%s: after the current snapshot the thread is %+v, want it complete", kind, state)
			}
		}
		e.equal("progress", e.progress(), consumers.Progress{Listed: 2, Stored: 2, Working: 2})
	},

	"a named message that is deleted is not waited for, whatever the thread's id says": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{
			change(108, consumers.LabelsAdded, "m3", "X"), change(110, consumers.MessageAdded, "m2")}})
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(120, consumers.MessageDeleted, "m2")}})
		e.save(b, snapshot("t1", 90, msg("m1", 90)), false) // m3 is still waited for
		e.save(b, snapshot("t1", 108, msg("m1", 90), msg("m3", 108, "X")), true)
		e.wantLabels(map[string][]string{"m1": nil, "m3": {"X"}})
	},

	"a named message that a snapshot brings is not waited for, whatever the thread's id says": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(110, consumers.LabelsAdded, "m2", "X")}})
		e.save(b, snapshot("t1", 90, msg("m1", 90), msg("m2", 90)), false)
		e.save(b, snapshot("t1", 90, msg("m1", 90), msg("m2", 110, "X")), true)
		e.wantLabels(map[string][]string{"m1": nil, "m2": {"X"}})
	},

	"a thread accepted as it is leaves what was named to the retry list": func(e *env) {
		run := e.started(consumers.RunImport, 100)
		b := e.list(run, ref("t1", 90))[0]
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{
			change(108, consumers.LabelsAdded, "m1", "X"), change(110, consumers.MessageAdded, "m2")}})
		e.must(e.Store.Postpone(e.ctx, consumers.Job{Kind: consumers.History, Account: acct}, now.Add(time.Hour)))
		old := snapshot("t1", 90, msg("m1", 105, "Y"))
		e.save(b, old, false)
		e.must(e.Store.AcceptThread(e.ctx, b, old, now))
		e.must(e.Store.AcceptThread(e.ctx, b, old, now))
		e.equal("progress", e.progress(), consumers.Progress{Listed: 1, Stored: 1, Working: 1})
		e.wantLabels(map[string][]string{"m1": {"Y"}})
		due, err := e.Store.DueFetches(e.ctx, acct, now, 10)
		e.must(err)
		if len(due) != 1 || due[0].MessageID != "m2" || due[0].ThreadID != "t1" || due[0].HistoryID != 110 || due[0].Attempts != 0 {
			e.Errorf("retry list %+v, want m2", due)
		}
		e.equal("due", e.jobs(now)[0], consumers.Job{Kind: consumers.History, Account: acct})
		if state, _ := e.thread("t1"); state.Complete || state.Open {
			e.Errorf("thread %+v, want it neither complete nor open", state)
		}
		e.apply(consumers.HistoryStep{Gone: []string{"m2"}})
		if state, _ := e.thread("t1"); !state.Complete {
			e.Error("the thread waits for a message that is gone")
		}
	},

	"a deletion of a message never stored keeps older snapshots out": func(e *env) {
		b := e.list(e.started(consumers.RunImport, 100), ref("t1", 90))[0]
		e.apply(consumers.HistoryStep{Changes: []consumers.Change{change(110, consumers.MessageDeleted, "m2")}, Cursor: 110})
		e.save(b, snapshot("t1", 90, msg("m1", 90), msg("m2", 90)), true)
		e.wantLabels(map[string][]string{"m1": nil})
	},

	"accounts do not touch each other": func(e *env) {
		e.must(e.AddAccount(e.ctx, "account-2", "bob@example.com"))
		e.imported(snapshot("t1", 90, msg("m1", 90, "INBOX")))
		e.must(e.Store.ApplyHistory(e.ctx, "account-2", consumers.HistoryStep{Cursor: 200,
			Messages: []consumers.Message{msg("m1", 200, "OTHER")},
			Changes:  []consumers.Change{change(210, consumers.MessageDeleted, "m1")}}, now))
		e.wantLabels(map[string][]string{"m1": {"INBOX"}})
		if c := e.account().Cursor; c != 100 {
			e.Errorf("cursor %d, want 100", c)
		}
	},
}
