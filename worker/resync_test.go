package worker

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

// missHistory stops the worker, lets happen what it will not be told of, and forgets the mailbox's history.
func (v *verifyRig) missHistory(happen func()) {
	v.Helper()
	v.stop()
	happen()
	v.must(v.sim.ExpireHistory(ann))
}

// restart starts a worker that reads the account's history at once.
func (v *verifyRig) restart() *Worker {
	v.Helper()
	var err error
	v.push, err = net.Listen("tcp", v.cfg.Push.Listen)
	v.must(err)
	w := v.build()
	v.must(w.Start(v.Context()))
	v.must(w.mirror.store.HistoryDone(v.Context(), v.id, time.Now(), time.Now()))
	return w
}

func (v *verifyRig) resynced() {
	v.Helper()
	v.eventually("the resync", func() bool {
		s := v.status(v.id)
		return s.Live() && s.HistoryID == fmt.Sprint(v.sim.HistoryID(ann))
	})
}

// kenn-io/msgvault#697: a resync finds all that happened meanwhile, for 10 units a page of 500 threads, one fetch of each
// thread that differs, and none of the others.
func TestAResyncFetchesOnlyWhatDiffers(t *testing.T) {
	v := newVerifyRig(t, 510, nil)
	v.missHistory(func() {
		_, err := v.sim.Deliver(ann, mailOf(1000))
		v.must(err)
		_, err = v.sim.Deliver(ann, replyTo(7))
		v.must(err)
		_, err = v.sim.Label(ann, v.refs[8].ID, []string{"STARRED"}, nil)
		v.must(err)
		_, err = v.sim.Delete(ann, v.replies[0].ID) // a message of a thread that stays
		v.must(err)
		_, err = v.sim.Delete(ann, v.refs[9].ID) // a whole thread
		v.must(err)
	})
	const differ = 4 // and one that is gone
	before := v.sim.Stats()
	v.restart()
	v.resynced()
	after := v.sim.Stats()
	calls := func(method string) int { return int(after.Calls[method] - before.Calls[method]) }
	if pages := calls("threads.list"); pages != 2 {
		t.Errorf("%d pages listed for 510 threads, want 2", pages)
	}
	// A thread that is not there may be there in a moment: it takes three answers to believe it.
	if gets := calls("threads.get"); gets != differ+3 {
		t.Errorf("%d threads fetched, want %d and three tries of the one that is gone", gets, differ)
	}
	if gets := calls("messages.get"); gets != 0 {
		t.Errorf("%d messages fetched, want none", gets)
	}
	t.Logf("%d units for a resync of 510 threads of which 5 differ, listing 20", after.Units-before.Units)
	v.mirror = v.worker.mirror
	if r := v.verify(VerifyOptions{Labels: true, Deep: 20}); !r.Equal() || r.Threads != 510 {
		t.Errorf("after the resync: %+v", r)
	}
}

// A thread is deleted only once the listing is complete: half a list says nothing of the other half. kenn-io/msgvault#697
func TestHalfAListDeletesNothing(t *testing.T) {
	sim := gmailsim.Config{EmptyPages: 2} // so that every list has two pages
	v := newVerifyRigOn(t, sim, 12, nil)
	v.missHistory(func() {
		for i := range 4 {
			_, err := v.sim.Delete(ann, v.refs[5+i].ID)
			v.must(err)
		}
		_, err := v.sim.Deliver(ann, mailOf(1000))
		v.must(err)
	})
	// The first page comes, the rest of the list does not.
	v.sim.AddFault(gmailsim.Fault{Method: "threads.list", Call: 2, Times: -1, Status: 503, Reason: "backendError"})
	before := v.sim.Stats().Faults
	w := v.restart()
	v.eventually("a list that breaks off", func() bool { return v.sim.Stats().Faults >= before+4 })
	if s := v.status(v.id); s.State != consumers.Resyncing || s.Threads < 12 {
		t.Errorf("half a list: %s with %d threads, want all 12 there", s.State, s.Threads)
	}
	v.sim.ClearFaults()
	v.must(w.mirror.store.ReleaseAll(t.Context())) // instead of the wait after a failure
	v.resynced()
	v.mirror = w.mirror
	if r := v.verify(VerifyOptions{Deep: all}); !r.Equal() || r.Threads != 9 {
		t.Errorf("after the resync: %+v", r)
	}
}
