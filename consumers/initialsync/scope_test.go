package initialsync

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// ids of what is mirrored.
func (f *fixture) mirrored() []string {
	var ids []string
	for _, m := range f.store.Live(account) {
		ids = append(ids, m.ID)
	}
	return ids
}

// rtCamp/frappe-gmail-thread#37
func TestAnImportStoresWhatTheScopeHasAndAWiderOneTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3)
		f.box.LabelList = []consumers.Label{{ID: "L1", Name: "Private", Type: "user"}}
		private := f.box.Add(consumers.Message{Labels: []string{"INBOX", "L1"}})
		f.handler.Scope = consumers.Scope{LabelsOut: []string{"private"}}
		f.finish()
		if got := f.mirrored(); len(got) != 3 || slices.Contains(got, private.ID) {
			t.Errorf("imported %v, want all but %s", got, private.ID)
		}
		fetched := f.box.Calls(consumertest.OpGetThread)
		f.handler.Scope = consumers.Scope{}
		f.handle()
		if got := f.account().State; got != consumers.Resyncing {
			t.Fatalf("a wider scope leaves the account %s", got)
		}
		f.finish()
		if got := f.mirrored(); len(got) != 4 {
			t.Errorf("mirrored %v, want all four", got)
		}
		if n := f.box.Calls(consumertest.OpGetThread) - fetched; n != 1 {
			t.Errorf("%d threads fetched for one that is inside now", n)
		}
	})
}

func TestANarrowerScopeCostsNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3)
		f.box.Add(consumers.Message{Labels: []string{"SPAM"}})
		f.finish()
		fetched := f.box.Calls(consumertest.OpGetThread)
		f.handler.Scope = consumers.Scope{NoSpam: true}
		f.handle()
		f.finish()
		if got := f.mirrored(); len(got) != 3 {
			t.Errorf("mirrored %v, want three without the spam", got)
		}
		if n := f.box.Calls(consumertest.OpGetThread) - fetched; n != 0 {
			t.Errorf("%d threads fetched", n)
		}
	})
}

func TestAScopeThatChangesInMidImportIsAppliedToAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 60)
		f.box.Add(consumers.Message{Labels: []string{"SPAM"}})
		f.handler.Scope = consumers.Scope{NoSpam: true}
		f.handle()
		f.fetch() // the spam, which is the newest, is stored as outside
		f.handler.Scope = consumers.Scope{}
		f.handle()
		f.finish()
		if got := f.mirrored(); len(got) != 61 {
			t.Errorf("%d messages, want all 61", len(got))
		}
	})
}

func TestAResyncRemovesWhatTheQueryFindsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 3)
		old := f.box.Live()[0].ID
		f.finish()
		fetched := f.box.Calls(consumertest.OpGetThread)
		f.box.Found = func(m consumers.Message) bool { return m.ID != old }
		f.handler.Scope = consumers.Scope{Query: "newer_than:1y"}
		f.handle()
		f.finish()
		if got := f.mirrored(); len(got) != 2 || slices.Contains(got, old) {
			t.Errorf("mirrored %v, want all but %s", got, old)
		}
		if n := f.box.Calls(consumertest.OpGetThread) - fetched; n != 0 {
			t.Errorf("%d threads fetched", n)
		}
	})
}

// kenn-io/msgvault#697: the run that takes the place of the listed one had its first page before its baseline.
func TestARunThatReplacesTheListedOneBeginsWithItsBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 120)
		listed := 0
		f.box.OnCall = func(op, _ string) {
			f.calls = append(f.calls, op)
			if op != consumertest.OpListThreads {
				return
			}
			if listed++; listed == 1 {
				_, err := f.store.SetScope(t.Context(), account, consumers.Scope{NoSpam: true}, time.Now())
				f.must(err)
			}
		}
		expect(t, "outcome", f.handle(), consumers.Yield())
		expect(t, "pages listed", listed, 1)
		run := f.run()
		expect(t, "kind", run.Kind, consumers.RunResync)
		expect(t, "baseline", run.Baseline, 0)
		expect(t, "threads listed", run.Progress.Listed, 0)
		f.handler.Scope = consumers.Scope{NoSpam: true}
		f.calls = nil
		f.handle()
		expect(t, "first call", f.calls[0], consumertest.OpProfile)
		f.finish()
		if got := f.mirrored(); len(got) != 120 {
			t.Errorf("%d messages, want all 120", len(got))
		}
	})
}
