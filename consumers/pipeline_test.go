package consumers_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

func fill(box *consumertest.Mailbox, threads int) {
	for i := range threads {
		m := box.Add(Message{Subject: fmt.Sprint("thread ", i)})
		for range i % 3 {
			box.Add(Message{ThreadID: m.ThreadID})
		}
	}
}

// kenn-io/msgvault#697: mail that came during a long first import was never seen.
func TestChangesDuringTheImportAreMirrored(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		box := w.boxes[account(0)]
		box.PageSize = 10
		fill(box, 30)
		mail := box.Live()
		var pages atomic.Int32
		box.OnCall = func(op, _ string) {
			if op == consumertest.OpListThreads && pages.Add(1) == 2 {
				box.Add(Message{Subject: "new"})
				box.Delete(mail[len(mail)-1].ID)
				box.Relabel(mail[len(mail)/2].ID, []string{"STARRED"}, nil)
				box.Add(Message{ThreadID: mail[0].ThreadID}) // to the front of the list
				box.Add(Message{ThreadID: mail[len(mail)/2].ThreadID})
				w.push(account(0))
			}
		}
		w.start()
		w.settled()
		expect(t, "profiles read", box.Calls(consumertest.OpProfile), 1)
	})
}

// gauteh/lieer#203: a full listing each time, as a quiet mailbox's newest message is older than its history.
func TestQuietMailboxIsListedOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		box := w.boxes[account(0)]
		fill(box, 39)
		for range 50 {
			box.Relabel(box.Live()[0].ID, []string{"STARRED"}, []string{"STARRED"})
		}
		box.ExpireHistory()
		w.start()
		w.settled()
		listed := box.Calls(consumertest.OpListThreads)
		pass(3*pollInterval + time.Second)
		expect(t, "listings later", box.Calls(consumertest.OpListThreads)-listed, 0)
		expect(t, "histories read", box.Calls(consumertest.OpHistory) >= 4, true)
	})
}

// kenn-io/msgvault#697: the gap of an expired cursor was lost; here the worker dies halfway through the recovery as well.
func TestExpiredCursorIsRecoveredAcrossACrash(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		box := w.boxes[account(0)]
		box.PageSize = 10
		fill(box, 40)
		w.start()
		w.settled()
		w.stop()
		mail := box.Live()
		box.Delete(mail[1].ID)
		box.Delete(mail[2].ID)
		box.Delete(mail[len(mail)-1].ID)
		fill(box, 2)
		box.Relabel(mail[4].ID, []string{"TRASH"}, []string{"INBOX"})
		box.ExpireHistory()

		box.OnCall = func(op, _ string) {
			if op == consumertest.OpListThreads || op == consumertest.OpGetThread {
				time.Sleep(time.Second)
			}
		}
		w.start()
		for range 3 {
			pass(3500 * time.Millisecond)
			w.kill()
			expect(t, "deleted by half a list", len(w.store.Live(account(0))) >= len(mail)-3, true)
			w.start()
		}
		w.settled()
		expect(t, "first page listed for the resync", box.Calls(consumertest.OpListThreads, "") <= 1+1+3, true)
	})
}

// openclaw/gogcli#930: deliveries for a revoked account failed without end.
func TestRevokedAccountIsQuietUntilItIsReconnected(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		id := account(0)
		box := w.boxes[id]
		fill(box, 20)
		w.start()
		w.settled()
		box.Inject(consumertest.Fault{Err: &MailboxError{Fault: AccountFault, State: Reauth, Reason: "invalid_grant"}})
		fill(box, 5)
		histories := box.Calls(consumertest.OpHistory)
		for range 50 {
			w.push(id)
			pass(time.Minute)
		}
		expect(t, "state", w.account(id).State, Reauth)
		expect(t, "calls of Gmail", box.Calls(consumertest.OpHistory)-histories, 1)
		s := w.runners[History].Stats()
		expect(t, "retries and waits", s.Retried+s.Requeued+int64(s.Parked)+int64(s.Ready), 0)

		box.Heal()
		if _, err := w.store.SetState(t.Context(), id, Live, ""); err != nil {
			t.Fatal(err)
		}
		w.settled()
	})
}

// s1t5/mail-archiver#80: one huge mailbox delayed everybody's new mail.
func TestNewMailOfOthersPassesAHugeImport(t *testing.T) {
	inWorld(t, 11, func(w *world) {
		for i := 1; i <= 10; i++ {
			fill(w.boxes[account(i)], 1)
		}
		w.start()
		w.settled()
		huge := w.boxes[account(0)]
		for i := range 3000 {
			huge.Add(Message{Subject: strconv.Itoa(i)})
		}
		// The guard at its limit: each call sleeps for its units, every third is denied.
		var calls atomic.Int32
		huge.OnCall = func(_, _ string) {
			time.Sleep(400 * time.Millisecond)
			if calls.Add(1)%3 == 0 {
				huge.Inject(consumertest.Fault{Times: 1, Err: &MailboxError{Fault: Throttled, Denied: true, Wait: 10 * time.Second}})
			}
		}
		w.push(account(0))
		pass(time.Minute)
		for i := 1; i <= 10; i++ {
			w.boxes[account(i)].Add(Message{Subject: "new"})
			w.push(account(i))
		}
		pass(time.Second)
		for i := 1; i <= 10; i++ {
			expect(t, "stored for "+account(i), len(w.store.Live(account(i))), 2)
		}
	})
}

// Everything at once: random changes, notifications that are lost, doubled and late, passing faults and throttles, and a
// worker that is killed, each with its own seed. In the end each mirror is its mailbox.
func TestMirrorsAreRightAfterAnything(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				random := rand.New(rand.NewPCG(seed, 42))
				for _, box := range w.boxes {
					box.PageSize = 3 + random.IntN(10)
				}
				for i := range 2 {
					fill(w.boxes[account(i)], random.IntN(40))
				}
				w.start()
				for range 60 {
					w.disturb(random)
					pass(time.Duration(random.IntN(2000)) * time.Millisecond)
				}
				for _, box := range w.boxes {
					box.Heal()
				}
				w.settled()
			})
		})
		if t.Failed() {
			return
		}
	}
}

// disturb lets one random thing happen to a mailbox or to the worker.
func (w *world) disturb(random *rand.Rand) {
	id := account(random.IntN(2))
	box := w.boxes[id]
	mail := box.Live()
	pick := func() Message {
		if len(mail) == 0 {
			return box.Add(Message{})
		}
		return mail[random.IntN(len(mail))]
	}
	ops := []string{"", consumertest.OpListThreads, consumertest.OpGetThread, consumertest.OpGetMessage, consumertest.OpHistory}
	op := ops[random.IntN(len(ops))]
	switch random.IntN(14) {
	case 0, 1:
		fill(box, 1+random.IntN(3))
	case 2:
		box.Add(Message{ThreadID: pick().ThreadID})
	case 3:
		m := pick()
		box.Add(Message{ThreadID: m.ThreadID})
		box.Add(Message{ThreadID: m.ThreadID})
	case 4:
		box.Relabel(pick().ID, []string{"STARRED"}, []string{"UNREAD"})
	case 5:
		box.Relabel(pick().ID, []string{"TRASH", "UNREAD"}, []string{"INBOX", "STARRED"})
	case 6, 7:
		box.Delete(pick().ID)
	case 8:
		box.Delete(box.Add(Message{}).ID)
	case 9, 10:
		box.Inject(consumertest.Fault{Op: op, Times: 1 + random.IntN(2), Err: &MailboxError{Fault: Passing, Status: 503}})
	case 11:
		wait := time.Duration(random.IntN(3000)) * time.Millisecond
		box.Inject(consumertest.Fault{Op: op, Times: 1 + random.IntN(5), Err: &MailboxError{Fault: Throttled, Wait: wait, Denied: true}})
	case 12:
		w.queue.trouble(0.3*random.Float64(), 0.3*random.Float64(), time.Duration(random.IntN(5000))*time.Millisecond)
	case 13:
		switch random.IntN(4) {
		case 0:
			w.kill()
			w.start()
		case 1:
			w.stop()
			w.start()
		case 2:
			w.kill()
			fill(box, 2)
			box.Delete(pick().ID)
			box.ExpireHistory()
			w.start()
		}
	}
	if random.IntN(3) > 0 {
		w.push(id)
	}
}
