package worker

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
)

const ann = "ann@example.com"

// verifyRig is a mirror of one simulated mailbox, imported whole, with no worker on it. The first three threads have a
// reply.
type verifyRig struct {
	*rig
	refs    []gmailsim.MessageRef
	replies []gmailsim.MessageRef
	id      string
	mirror  *Mirror
}

func newVerifyRig(t *testing.T, threads int, prepare func(*rig)) *verifyRig {
	t.Helper()
	return newVerifyRigOn(t, gmailsim.Config{}, threads, prepare)
}

// newVerifyRigOn is newVerifyRig with settings of the simulator.
func newVerifyRigOn(t *testing.T, simulated gmailsim.Config, threads int, prepare func(*rig)) *verifyRig {
	t.Helper()
	v := &verifyRig{rig: newRigOn(t, simulated)}
	v.sim.AddAccount(ann)
	v.refs = v.load(threads)
	for i := range 3 {
		ref, err := v.sim.Load(ann, replyTo(i))
		v.must(err)
		v.replies = append(v.replies, ref)
	}
	if prepare != nil {
		prepare(v.rig)
	}
	w := v.build()
	v.must(w.Start(t.Context()))
	v.id = v.connect(ann)
	v.eventually("the import", func() bool { return v.status(v.id).Live() })
	return v
}

// alone stops the worker and opens the mirror as a command does.
func (v *verifyRig) alone() {
	v.Helper()
	v.stop()
	var err error
	v.mirror, err = OpenMirror(v.Context(), v.cfg, zap.NewNop())
	v.must(err)
	v.Cleanup(func() { v.must(v.mirror.Close()) })
}

func replyTo(i int) []byte {
	return fmt.Appendf(nil, "From: c@example.com\r\nTo: a@example.com\r\nSubject: Re: subject %[1]d\r\n"+
		"Message-ID: <r%[1]d@example.com>\r\nIn-Reply-To: <m%[1]d@example.com>\r\nReferences: <m%[1]d@example.com>\r\n"+
		"Date: Mon, 2 Nov 2026 11:00:00 +0000\r\n\r\nReply %[1]d.\r\n", i)
}

// damage changes the store behind everybody's back.
func (v *verifyRig) damage(statements ...string) {
	v.Helper()
	db, err := sql.Open("sqlite", "file:"+v.cfg.Store.Path+"?_pragma=busy_timeout(10000)")
	v.must(err)
	for _, s := range statements {
		_, err := db.ExecContext(v.Context(), s)
		v.must(err)
	}
	v.must(db.Close())
}

func (v *verifyRig) verify(opt VerifyOptions) VerifyResult {
	v.Helper()
	r, err := v.mirror.Verify(v.Context(), v.id, opt)
	v.must(err)
	return r
}

// kinds lists the differences as "missing" or, in flight, "missing in flight".
func kinds(r VerifyResult) string {
	var list []string
	for _, d := range r.Differences {
		s := string(d.Kind)
		if d.InFlight {
			s += " in flight"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

const all = 1000 // more threads than there are

// copyMessage puts a message into the store that the mailbox never had, beside one that it has.
func copyMessage(of, id, thread, history string) string {
	return fmt.Sprintf(`INSERT INTO messages (account_id, id, thread_id, history_id, label_ids, subject, raw)
		SELECT account_id, '%s', '%s', %s, label_ids, 'damaged', raw FROM messages WHERE id = '%s'`, id, thread, history, of)
}

// Each damage is found by the cheapest way that can, repaired, and then there is nothing left.
func TestVerifyRepairsADamagedMirror(t *testing.T) {
	v := newVerifyRig(t, 12, nil)
	v.alone()
	one, two, reply, old := v.refs[5].ID, v.refs[0].ID, v.replies[0].ID, v.refs[1].ID
	const ghost, ghost2, ghost3 = "0000000000000abc", "0000000000000abd", "0000000000000abe"
	for name, c := range map[string]struct {
		damage []string
		shows  VerifyOptions // what finds it
		hidden bool          // the threads' history ids alone do not
		kinds  string
	}{
		"a thread is missing": {
			damage: []string{"DELETE FROM messages WHERE id = '" + one + "'", "DELETE FROM threads WHERE id = '" + one + "'"},
			kinds:  "missing",
		},
		"a thread is there that was deleted": {
			damage: []string{copyMessage(one, ghost2, ghost2, "history_id"),
				`INSERT INTO threads (account_id, id, history_id, snapshot_history_id, complete, message_count)
				SELECT account_id, '` + ghost2 + `', history_id, snapshot_history_id, 1, 1 FROM threads WHERE id = '` + one + `'`},
			kinds: "extra",
		},
		"a message is missing and its thread looks old": {
			damage: []string{"DELETE FROM messages WHERE id = '" + reply + "'",
				"UPDATE threads SET history_id = '00000000000000000001' WHERE id = '" + two + "'"},
			kinds: "missing",
		},
		"a message is missing": {
			damage: []string{"DELETE FROM messages WHERE id = '" + reply + "'"},
			shows:  VerifyOptions{Deep: all}, hidden: true, kinds: "missing",
		},
		"a message is there that was deleted": {
			damage: []string{copyMessage(two, ghost, two, "history_id")},
			shows:  VerifyOptions{Deep: all}, hidden: true, kinds: "extra",
		},
		// Nothing says that a thread's history id rises when a message of it is deleted: then the message is newer than its
		// thread, and only a fetch of it tells that it is gone.
		"a deleted message is newer than its thread": {
			damage: []string{copyMessage(old, ghost3, old, "(SELECT max(history_id) FROM messages)")},
			shows:  VerifyOptions{Deep: all}, hidden: true, kinds: "extra",
		},
		"labels are wrong, found by lists": {
			damage: []string{`UPDATE messages SET label_ids = '["STARRED","UNREAD"]' WHERE id = '` + one + "'"},
			shows:  VerifyOptions{Labels: true}, hidden: true, kinds: "labels",
		},
		"a label that does not exist": {
			damage: []string{`UPDATE messages SET label_ids = '["INBOX","Label_99","UNREAD"]' WHERE id = '` + one + "'"},
			shows:  VerifyOptions{Labels: true}, hidden: true, kinds: "labels",
		},
		"labels are wrong, found by the sample": {
			damage: []string{"UPDATE messages SET label_ids = '[]' WHERE id = '" + one + "'"},
			shows:  VerifyOptions{Deep: all}, hidden: true, kinds: "labels",
		},
		"text is damaged": {
			damage: []string{"UPDATE messages SET body_text = 'x' WHERE id = '" + reply + "'"},
			shows:  VerifyOptions{Deep: all}, hidden: true, kinds: "content",
		},
		"what Gmail returned is damaged": {
			damage: []string{"UPDATE messages SET raw = (SELECT raw FROM messages WHERE id = '" + one + "')" +
				" WHERE id = '" + two + "'"},
			shows: VerifyOptions{Deep: all}, hidden: true, kinds: "content",
		},
		"an attachment is there that never was": {
			damage: []string{`INSERT INTO attachments
				(account_id, message_id, part_id, filename, mime_type, content_id, inline, size)
				SELECT account_id, id, '7', 'a.txt', 'text/plain', '', 0, 1 FROM messages WHERE id = '` + one + "'"},
			shows: VerifyOptions{Deep: all}, hidden: true, kinds: "content",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verifyRig{rig: &rig{T: t, cfg: v.cfg}, id: v.id, mirror: v.mirror}
			v.damage(c.damage...)
			if r := v.verify(VerifyOptions{}); r.Equal() != c.hidden {
				t.Errorf("by the threads' history ids: %+v", r)
			}
			if r := v.verify(c.shows); r.Equal() || kinds(r) != c.kinds {
				t.Errorf("found %q, want %q: %+v", kinds(r), c.kinds, r)
			}
			repair := c.shows
			repair.Repair = true
			if r := v.verify(repair); !r.Equal() || r.Repaired != r.Found() || r.Found() != 1 {
				t.Errorf("repair: %+v", r)
			}
			if r := v.verify(VerifyOptions{Labels: true, Deep: all}); !r.Equal() || r.Found() != 0 || r.Sampled < 11 {
				t.Errorf("after the repair: %+v", r)
			}
		})
	}
}

// A row that is newer than all that Gmail returns is not written over: it is said to be left.
func TestRepairLeavesWhatIsNewer(t *testing.T) {
	v := newVerifyRig(t, 5, nil)
	v.alone()
	v.damage("UPDATE messages SET body_text = 'x', history_id = '00000000009999999999' WHERE id = '" + v.refs[4].ID + "'")
	if r := v.verify(VerifyOptions{Deep: all, Repair: true}); r.Equal() || r.Different != 1 || r.Repaired != 0 {
		t.Errorf("%+v, want one difference that is left", r)
	}
}

// A thread that the listing names is not deleted by a 404, and one that Gmail cannot answer does not end the comparison.
func TestRepairDeletesOnlyWhatIsGone(t *testing.T) {
	v := newVerifyRig(t, 5, nil)
	v.alone()
	v.damage("UPDATE threads SET history_id = '00000000000000000001'")
	for status, ref := range map[int]gmailsim.MessageRef{404: v.refs[3], 400: v.refs[4]} {
		v.sim.AddFault(gmailsim.Fault{Method: "threads.get", ID: ref.ThreadID, Status: status, Times: -1})
	}
	r := v.verify(VerifyOptions{Repair: true})
	if r.Extra != 0 || r.InFlight != 1 || r.Unreadable != 1 || r.Equal() || r.Repaired != 0 {
		t.Errorf("%+v, want one in flight and one unreadable", r)
	}
	v.sim.ClearFaults()
	if r := v.verify(VerifyOptions{Deep: all}); !r.Equal() || r.Found() != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// A thread that is too large for one answer is compared and repaired message by message.
func TestVerifyRepairsALargeThread(t *testing.T) {
	line := strings.Repeat("A line of some length, of which there are many.\r\n", 2000)
	v := newVerifyRig(t, 4, func(r *rig) {
		for i := range 60 {
			reply := strings.Replace(string(replyTo(3)), "<r3@", fmt.Sprintf("<r3-%d@", i), 1) + line
			_, err := r.sim.Load(ann, []byte(reply))
			r.must(err)
		}
	})
	v.alone()
	thread := v.refs[3].ThreadID
	v.damage("DELETE FROM messages WHERE id = (SELECT max(id) FROM messages WHERE thread_id = '"+thread+"')",
		"UPDATE messages SET label_ids = '[]' WHERE id = (SELECT min(id) FROM messages WHERE thread_id = '"+thread+"')",
		copyMessage(thread, "0000000000000abc", thread, "history_id"))
	if r := v.verify(VerifyOptions{Deep: all}); r.Missing != 1 || r.Extra != 1 || r.Different != 1 {
		t.Errorf("found: %s", kinds(r))
	}
	if r := v.verify(VerifyOptions{Deep: all, Repair: true}); !r.Equal() || r.Repaired != 3 {
		t.Errorf("repair: %+v", r)
	}
	if r := v.verify(VerifyOptions{Deep: all, Labels: true}); r.Found() != 0 {
		t.Errorf("after the repair: %+v", r)
	}
}

// 10 units a 500 threads where all is well, as class maintenance.
func TestVerifyIsCheap(t *testing.T) {
	v := newVerifyRig(t, 60, nil)
	v.alone()
	spy := &classes{Guard: v.mirror.guard, seen: map[gmailquota.Class]int{}}
	cfg := v.mirror.gmailConfig(v.mirror.tokens)
	cfg.Guard = spy
	var err error
	v.mirror.gmail.CloseIdle()
	v.mirror.gmail, err = gmailapi.New(cfg)
	v.must(err)
	before := v.sim.Stats().Units
	if r := v.verify(VerifyOptions{}); !r.Equal() || r.Threads != 60 {
		t.Errorf("%+v", r)
	}
	if units := v.sim.Stats().Units - before; units != 1+10 {
		t.Errorf("%d units, want a profile and a page: 11", units)
	}
	labels := len(v.mustLabels())
	before = v.sim.Stats().Units
	v.verify(VerifyOptions{Labels: true, Deep: 7})
	if units, want := v.sim.Stats().Units-before, int64(1+10+1+5*labels+7*40); units != want {
		t.Errorf("%d units with labels and a sample, want %d", units, want)
	}
	if len(spy.seen) != 1 || spy.seen[gmailquota.Maintenance] == 0 {
		t.Errorf("classes charged: %v, want maintenance alone", spy.seen)
	}
}

func (v *verifyRig) mustLabels() []string {
	v.Helper()
	box, err := v.mirror.gmail.Mailbox(v.Context(), v.id, gmailquota.Maintenance)
	v.must(err)
	labels, err := box.Labels(v.Context())
	v.must(err)
	ids := make([]string, len(labels))
	for i, l := range labels {
		ids[i] = l.ID
	}
	return ids
}

// classes notes what classes are charged.
type classes struct {
	*gmailquota.Guard
	mu   sync.Mutex
	seen map[gmailquota.Class]int
}

// Acquire implements gmailapi.Guard.
func (c *classes) Acquire(ctx context.Context, r gmailquota.Request) (*gmailquota.Grant, error) {
	c.mu.Lock()
	c.seen[r.Class]++
	c.mu.Unlock()
	return c.Guard.Acquire(ctx, r)
}

// What happens between the listing and the fetches is in flight: without a worker it is told as that and no difference;
// with one it is compared again until it is stored.
func TestChangesDuringVerifyAreNoDifferences(t *testing.T) {
	for name, running := range map[string]bool{"beside a worker": true, "without a worker": false} {
		t.Run(name, func(t *testing.T) {
			var v *verifyRig
			listings := 0
			v = newVerifyRig(t, 8, func(r *rig) {
				inner := r.sim.Handler()
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					inner.ServeHTTP(w, req)
					if strings.HasSuffix(req.URL.Path, "/threads") {
						if listings++; listings == 2 { // the first is the import's
							v.disturb()
						}
					}
				}))
				r.Cleanup(front.Close)
				r.cfg.Gmail.Endpoint = front.URL
			})
			v.mirror = v.worker.mirror
			if !running {
				v.alone()
			}
			r := v.verify(VerifyOptions{Deep: all, Repair: true})
			want := 4
			if running {
				want = 0
			}
			if !r.Equal() || r.Found() != 0 || r.InFlight != want || (r.Fetched > 8) != running {
				t.Errorf("%s: %+v, want %d in flight", kinds(r), r, want)
			}
		})
	}
}

// disturb changes four threads: a reply, a label, a deleted reply, a deleted thread.
func (v *verifyRig) disturb() {
	_, err := v.sim.Deliver(ann, replyTo(5))
	v.must(err)
	_, err = v.sim.Label(ann, v.refs[6].ID, []string{"STARRED"}, nil)
	v.must(err)
	_, err = v.sim.Delete(ann, v.replies[0].ID)
	v.must(err)
	_, err = v.sim.Delete(ann, v.refs[7].ID)
	v.must(err)
}

// A verify that ends with its context does so while it waits for the worker.
func TestVerifyEndsWithItsContext(t *testing.T) {
	v := newVerifyRig(t, 4, nil)
	v.damage(copyMessage(v.refs[1].ID, "0000000000000abc", v.refs[1].ID, "history_id"))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel) // the message that Gmail lacks is looked at again for ten seconds
	if _, err := v.worker.mirror.Verify(ctx, v.id, VerifyOptions{Deep: all}); err == nil {
		t.Error("no error")
	}
}

// A thread's messages outside the scope are stored as that by a repair, not as deleted: a wider scope finds them again.
func TestRepairKeepsWhatIsOutsideTheScope(t *testing.T) {
	line := strings.Repeat("A line of some length, of which there are many.\r\n", 2000)
	v := newVerifyRig(t, 4, func(r *rig) {
		for i := range 60 { // too large for one answer
			reply := strings.Replace(string(replyTo(3)), "<r3@", fmt.Sprintf("<r3-%d@", i), 1) + line
			ref, err := r.sim.Load(ann, []byte(reply))
			r.must(err)
			if i == 7 {
				_, err = r.sim.Label(ann, ref.ID, []string{"SPAM"}, []string{"INBOX"})
				r.must(err)
			}
		}
		r.cfg.Scope.Spam = false
	})
	_, err := v.sim.Label(ann, v.replies[0].ID, []string{"SPAM"}, []string{"INBOX"})
	v.must(err)
	v.eventually("the change", v.upToDate(v.id))
	v.alone()
	const outside = "SELECT count(*) FROM messages WHERE outside = 1"
	if n := v.count(outside); n != 2 {
		t.Fatalf("%d outside the scope, want 2", n)
	}
	for _, thread := range []string{v.refs[0].ThreadID, v.refs[3].ThreadID} {
		v.damage("UPDATE messages SET label_ids = '[]' WHERE id = '"+thread+"'",
			"DELETE FROM messages WHERE outside = 1 AND thread_id = '"+v.refs[3].ThreadID+"'")
	}
	if r := v.verify(VerifyOptions{Deep: all, Repair: true}); !r.Equal() || r.Repaired != 2 {
		t.Errorf("repair: %+v", r)
	}
	if n := v.count(outside); n != 2 {
		t.Errorf("%d outside the scope after the repair, want 2", n)
	}
	if r := v.verify(VerifyOptions{Deep: all}); r.Found() != 0 {
		t.Errorf("after the repair: %+v", r)
	}
}

// count returns the one number that a query answers with.
func (v *verifyRig) count(query string) (n int) {
	v.Helper()
	db, err := sql.Open("sqlite", "file:"+v.cfg.Store.Path+"?_pragma=busy_timeout(10000)")
	v.must(err)
	v.must(db.QueryRowContext(v.Context(), query).Scan(&n))
	v.must(db.Close())
	return n
}

// An answer that does not tell all of a thread's messages says of none that it is gone.
func TestAThreadThatIsNotToldWholeIsNotRepaired(t *testing.T) {
	v := newVerifyRig(t, 5, nil)
	v.alone()
	ref := v.refs[0]
	answer := fmt.Sprintf(`{"id":"%s","historyId":"%d","messages":[7]}`, ref.ThreadID, v.sim.HistoryID(ann))
	v.sim.AddFault(gmailsim.Fault{Method: "threads.get", ID: ref.ThreadID, Times: -1, Status: 200, Body: answer,
		Headers: map[string]string{"Content-Type": "application/json"}})
	if r := v.verify(VerifyOptions{Deep: all, Repair: true}); kinds(r) != "unreadable" || r.Equal() || r.Repaired != 0 {
		t.Errorf("%+v, want one unreadable thread", r)
	}
	v.sim.ClearFaults()
	if r := v.verify(VerifyOptions{Deep: all}); r.Found() != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// What was fetched before a resync moved the cursor is the resync's to find: nothing of it is stored.
func TestAResyncOvertakesARepair(t *testing.T) {
	var v *verifyRig
	watched := false
	v = newVerifyRig(t, 5, func(r *rig) {
		inner := r.sim.Handler()
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			inner.ServeHTTP(w, req)
			if watched && strings.Contains(req.URL.Path, "/threads/") {
				v.damage(`INSERT INTO runs (id, account_id, kind, baseline_history_id, due, started_at, finished_at)
					SELECT 'r', id, 'resync', '00000000009999999999', 1, 1, 1 FROM accounts`,
					"UPDATE accounts SET cursor_history_id = '00000000009999999999'")
				watched = false
			}
		}))
		r.Cleanup(front.Close)
		r.cfg.Gmail.Endpoint = front.URL
	})
	v.alone()
	reply := v.replies[0].ID
	v.damage("DELETE FROM messages WHERE id = '"+reply+"'",
		"UPDATE threads SET history_id = '00000000000000000001' WHERE id = '"+v.refs[0].ThreadID+"'")
	watched = true
	if r := v.verify(VerifyOptions{Repair: true}); kinds(r) != "missing in flight" || !r.Equal() || r.Repaired != 0 {
		t.Errorf("%s: %+v, want one in flight", kinds(r), r)
	}
	if n := v.count("SELECT count(*) FROM messages WHERE id = '" + reply + "'"); n != 0 {
		t.Error("stored")
	}
	if r := v.verify(VerifyOptions{Repair: true}); r.Repaired != 1 || !r.Equal() {
		t.Errorf("fetched since: %+v, want one repaired", r)
	}
}

// A thread or message that fails for good, though Gmail is there, keeps none of the others from being repaired. With
// Gmail away the comparison ends.
func TestVerifyGoesOnWithoutWhatFails(t *testing.T) {
	const ghost = "0000000000000abc"
	v := newVerifyRig(t, 5, nil)
	v.alone()
	v.damage(copyMessage(v.refs[1].ID, ghost, v.refs[1].ID, "(SELECT max(history_id) FROM messages)"),
		"DELETE FROM messages WHERE id = '"+v.refs[4].ID+"'")
	v.sim.AddFault(gmailsim.Fault{Method: "threads.get", ID: v.refs[0].ThreadID, Status: 500, Times: -1})
	v.sim.AddFault(gmailsim.Fault{Method: "messages.get", ID: ghost, Status: 500, Times: -1})
	r := v.verify(VerifyOptions{Deep: all, Repair: true})
	if r.Unreadable != 1 || r.Extra != 1 || r.Missing != 1 || r.Repaired != 1 || r.Equal() {
		t.Errorf("%s: %+v, want all but two repaired", kinds(r), r)
	}
	v.sim.AddFault(gmailsim.Fault{Method: "getProfile", Status: 500, Times: -1, Call: 2}) // the first is the beginning's
	if r, err := v.mirror.Verify(t.Context(), v.id, VerifyOptions{Deep: all}); err == nil {
		t.Errorf("no error with Gmail away: %+v", r)
	}
}
