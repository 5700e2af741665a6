package history

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// scoped is a mirrored mailbox of which only a part is mirrored.
func scoped(t *testing.T, s consumers.Scope) *fixture {
	f := newFixture(t)
	f.handler.Scope = s
	_, err := f.store.SetScope(f.Context(), account, s, time.Now())
	f.must(err)
	return f
}

// inside checks that the mirror is the part of the mailbox that the scope has.
func (f *fixture) inside() {
	f.Helper()
	var want, got []string
	for _, m := range f.box.Live() {
		if f.handler.Scope.Has(m.Labels) {
			want = append(want, m.ID)
		}
	}
	for _, m := range f.store.Live(account) {
		got = append(got, m.ID)
	}
	if !slices.Equal(got, want) {
		f.Errorf("mirrored %v, want %v", got, want)
	}
}

// rtCamp/frappe-gmail-thread#28, #37; twentyhq/twenty#22889
func TestHistoryImportsNothingThatTheImportLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := scoped(t, consumers.Scope{LabelsIn: []string{"INBOX"}, LabelsOut: []string{"Private"}, NoTrash: true})
		in := f.add(1)[0]
		out := f.box.Add(consumers.Message{Labels: []string{"INBOX", "Private"}})
		f.mirror(consumers.RunImport, true)
		f.inside()
		before := f.fetches()
		f.box.Relabel(out.ID, []string{"STARRED"}, nil)
		f.box.Relabel(in.ID, []string{"STARRED"}, nil)
		f.done(f.handle())
		f.inside()
		expect(t, "fetches for label changes inside and outside", f.fetches()-before, 0)
		f.box.Add(consumers.Message{Labels: []string{"SENT"}})
		f.reply(in)
		f.done(f.handle())
		f.inside()
	})
}

func TestTrashedMailLeavesTheScopeAndUntrashedMailComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := scoped(t, consumers.Scope{NoTrash: true})
		m := f.add(2)[0]
		f.mirror(consumers.RunImport, true)
		before := f.fetches()
		f.box.Relabel(m.ID, []string{"TRASH"}, []string{"INBOX"})
		f.done(f.handle())
		f.inside()
		expect(t, "fetches for a message that leaves", f.fetches()-before, 0)
		f.box.Relabel(m.ID, []string{"INBOX"}, []string{"TRASH"})
		f.done(f.handle())
		time.Sleep(time.Second)
		f.done(f.handle())
		f.equal()
		expect(t, "fetches for a message that enters", f.fetches()-before, 1)
	})
}

func TestAQueryLetsNewMailInAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := scoped(t, consumers.Scope{Query: "newer_than:1y"})
		old := f.add(1)[0]
		f.box.Found = func(m consumers.Message) bool { return m.ID != old.ID }
		f.add(1)
		f.mirror(consumers.RunImport, true)
		expect(t, "imported", len(f.store.Live(account)), 1)
		before := f.fetches()
		f.box.Relabel(old.ID, []string{"STARRED"}, nil)
		f.done(f.handle())
		time.Sleep(poll)
		f.done(f.handle())
		expect(t, "mirrored after a label change of old mail", len(f.store.Live(account)), 1)
		expect(t, "fetches", f.fetches()-before, 0)
		f.reply(old) // the query would find the thread now, with all of it
		f.done(f.handle())
		f.equal()
	})
}

func TestAChangedScopeCallsTheInitialSyncBeforeHistoryGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.add(1)
		f.box.Add(consumers.Message{Labels: []string{"SPAM"}})
		f.mirror(consumers.RunImport, true)
		f.handler.Scope = consumers.Scope{NoSpam: true}
		f.done(f.handle())
		f.inside()
		expect(t, "state", f.account().State, consumers.Resyncing)
		expect(t, "initial syncs called", f.queue.kinds()[consumers.InitialSync], 1)
		f.done(f.handle())
		expect(t, "history asked once the scope is stored", f.box.Calls(consumertest.OpHistory), 1)
	})
}

func TestAPassThatAResyncOvertakesBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.add(1)
		f.mirror(consumers.RunImport, true)
		late := f.add(1)[0]
		f.box.OnCall = func(op, _ string) {
			if op != consumertest.OpGetMessage {
				return
			}
			f.box.OnCall = nil
			f.box.Delete(late.ID)
			f.mirror(consumers.RunResync, true)
		}
		if out := f.handle(); out.Verdict != consumers.VerdictRequeue || out.After != 0 {
			t.Errorf("got %+v, want to begin again at once", out)
		}
		f.done(f.handle())
		f.equal()
	})
}
