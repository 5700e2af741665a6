package worker

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// mirrored returns the subjects of the mirrored messages, sorted.
func (r *rig) mirrored(id string) []string {
	r.Helper()
	var subjects []string
	r.must(r.worker.mirror.store.EachMessage(r.Context(), id, func(m consumers.Message) error {
		subjects = append(subjects, m.Subject)
		return nil
	}))
	slices.Sort(subjects)
	return subjects
}

func (r *rig) wantMirrored(id, when string, numbers ...int) {
	r.Helper()
	want := make([]string, len(numbers))
	for i, n := range numbers {
		want[i] = fmt.Sprintf("subject %d", n)
	}
	if got := r.mirrored(id); !slices.Equal(got, want) {
		r.Errorf("%s: mirrored %q, want %q", when, got, want)
	}
	if v := r.verified(id); !v.Equal() || v.Fetched > 0 {
		r.Errorf("%s: %+v", when, v)
	}
}

// restart ends the worker and begins again with the configuration as it is now.
func (r *rig) restart() {
	r.Helper()
	r.stop()
	var err error
	r.push, err = net.Listen("tcp", r.cfg.Push.Listen)
	r.must(err)
	r.must(r.build().Start(r.Context()))
}

func (r *rig) upToDate(id string) func() bool {
	return func() bool {
		a, err := r.worker.mirror.store.Account(r.Context(), id)
		r.must(err)
		s := r.status(id) // after the scope, with which the state changes
		due, err := r.worker.mirror.store.DueFetches(r.Context(), id, time.Now().Add(24*time.Hour), 1)
		r.must(err)
		return s.Live() && s.HistoryID == fmt.Sprint(r.sim.HistoryID(ann)) && a.Scope.Equal(scopeOf(r.cfg.Scope)) && len(due) == 0
	}
}

// rtCamp/frappe-gmail-thread#28, #37; twentyhq/twenty#22889: import, history and resync mirror the same part of the mailbox.
func TestOnlyTheScopeIsMirrored(t *testing.T) {
	r := newRig(t)
	r.sim.AddAccount(ann)
	private, err := r.sim.AddLabel(ann, "Private")
	r.must(err)
	refs := r.load(4)
	change := func(i int, add, remove []string) {
		t.Helper()
		_, err := r.sim.Label(ann, refs[i].ID, add, remove)
		r.must(err)
	}
	change(1, []string{private}, nil)
	change(2, []string{"SPAM"}, []string{"INBOX"})
	r.cfg.Scope.LabelsOut, r.cfg.Scope.Spam, r.cfg.Scope.Trash = []string{"private"}, false, false
	r.must(r.build().Start(t.Context()))
	id := r.connect(ann)
	r.eventually("the import", r.upToDate(id))
	r.wantMirrored(id, "after the import", 0, 3)

	change(0, []string{private}, nil)
	change(1, []string{"STARRED"}, []string{private})
	_, err = r.sim.Deliver(ann, mailOf(5), "SPAM")
	r.must(err)
	_, err = r.sim.Trash(ann, refs[3].ID)
	r.must(err)
	r.eventually("the changes", r.upToDate(id))
	r.wantMirrored(id, "after changes", 1)

	r.must(r.sim.ExpireHistory(ann))
	r.stop()
	_, err = r.sim.Untrash(ann, refs[3].ID)
	r.must(err)
	r.push, err = net.Listen("tcp", r.cfg.Push.Listen)
	r.must(err)
	r.must(r.build().Start(t.Context()))
	_, err = r.worker.Mirror().ResyncAccount(t.Context(), id)
	r.must(err)
	r.eventually("the resync", r.upToDate(id))
	r.wantMirrored(id, "after the resync", 1, 3)

	r.cfg.Scope.Spam, r.cfg.Scope.LabelsOut = true, nil
	r.restart()
	r.eventually("the wider scope", r.upToDate(id))
	r.wantMirrored(id, "in a wider scope", 0, 1, 2, 3, 5)

	r.cfg.Scope.Query = `subject:"subject 1"`
	r.restart()
	r.eventually("the query", r.upToDate(id))
	r.wantMirrored(id, "with a query", 1)
	change(0, []string{"STARRED"}, nil)
	r.eventually("the change outside the query", r.upToDate(id))
	r.wantMirrored(id, "after a change outside the query", 1)
}
