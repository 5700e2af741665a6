package modeltest

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// happen lets one event happen.
func (w *world) happen(e Event) error {
	id := w.ids[e.Account%len(w.ids)]
	if w.inMailbox(w.boxes[id], e) {
		w.push(id, e.Push)
		return nil
	}
	if w.OldIDs && (e.What == "expire history" || e.What == "resync") {
		return nil // a thread whose id does not tell of its deletions is beyond a comparison by ids
	}
	return w.toWorker(id, e)
}

// push delivers Gmail's notification.
func (w *world) push(id, how string) {
	j := consumers.Job{Kind: consumers.History, Account: id, At: time.Now()}
	switch how {
	case "once":
		w.queue.send(j)
	case "twice":
		w.queue.send(j)
		w.queue.send(j)
	case "late":
		w.queue.mu.Lock()
		defer w.queue.mu.Unlock()
		w.queue.later(&message{j}, 5*time.Second)
	}
}

// inMailbox does what the owner or a sender does; false is for an event of another kind.
func (w *world) inMailbox(box *consumertest.Mailbox, e Event) bool {
	mail := box.Live()
	if len(mail) == 0 {
		mail = append(mail, box.Add(consumers.Message{}))
	}
	m := mail[e.Pick%len(mail)]
	thread := func(do func(consumers.Message)) {
		for _, in := range mail {
			if in.ThreadID == m.ThreadID {
				do(in)
			}
		}
	}
	switch e.What {
	case "deliver":
		box.Add(consumers.Message{})
	case "reply":
		box.Add(consumers.Message{ThreadID: m.ThreadID})
	case "replies":
		for range 1 + e.Size%3 {
			box.Add(consumers.Message{ThreadID: m.ThreadID})
		}
	case "draft":
		box.Add(consumers.Message{ThreadID: m.ThreadID, Labels: []string{"DRAFT"}})
	case "edit draft":
		box.Replace(m.ID, []string{"DRAFT"})
	case "send":
		box.Replace(m.ID, []string{"SENT"})
	case "label":
		box.Relabel(m.ID, []string{"Label_1"}, []string{"UNREAD"})
	case "unlabel":
		box.Relabel(m.ID, nil, []string{"Label_1", "INBOX"})
	case "delete label":
		for _, in := range mail {
			box.Relabel(in.ID, nil, []string{"Label_1"})
		}
	case "trash":
		thread(func(in consumers.Message) { box.Relabel(in.ID, []string{"TRASH"}, []string{"INBOX"}) })
	case "untrash":
		thread(func(in consumers.Message) { box.Relabel(in.ID, []string{"INBOX"}, []string{"TRASH"}) })
	case "spam":
		box.Relabel(m.ID, []string{"SPAM"}, []string{"INBOX"})
	case "delete":
		box.Delete(m.ID)
	case "batch delete":
		var ids []string
		for i := range e.Size % 6 {
			ids = append(ids, mail[(e.Pick+i*3)%len(mail)].ID)
		}
		box.DeleteAll(ids...)
	case "import":
		box.Import(consumers.Message{})
	case "flash": // there and gone again
		box.Delete(box.Add(consumers.Message{ThreadID: m.ThreadID}).ID)
	default:
		return false
	}
	return true
}

func (w *world) toWorker(id string, e Event) error {
	box := w.boxes[id]
	wk := w.workers[e.Pick%len(w.workers)]
	switch e.What {
	case "kill":
		wk.p.dieIn(e.Size)
	case "restart":
		if err := w.stop(wk); err != nil {
			return err
		}
		return w.start()
	case "second worker":
		if len(w.workers) < 2 {
			return w.start()
		}
	case "expire history":
		box.ExpireHistory()
		w.expired++
	case "revoke":
		revoked := &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}
		box.Inject(consumertest.Fault{Err: revoked})
	case "reconnect":
		box.Heal()
		return w.reconnect(id)
	case "denials":
		w.weather.set(func(w *weather) { w.deny = time.Now().Add(time.Duration(3*e.Size) * time.Second) })
	case "queue trouble":
		w.queue.trouble(e.Size%30, e.Pick%30, time.Duration(e.Size)*200*time.Millisecond)
	case "resync":
		w.expired++ // straight after it history must not be too old either
		return w.resync(id)
	default:
		return errors.New("no such event")
	}
	return nil
}

// resync is `gmailsync account resync`.
func (w *world) resync(id string) error {
	a, err := w.fixture.Store.Account(w.ctx, id)
	if err != nil || a.State != consumers.Live {
		return err
	}
	_, started, err := w.fixture.Store.StartRun(w.ctx, id, consumers.RunResync, time.Now())
	if started {
		w.book.ran(id)
	}
	return err
}

// reconnect is `gmailsync account add` of an account that waits for somebody to act: it goes on where it was.
func (w *world) reconnect(id string) error {
	a, err := w.fixture.Store.Account(w.ctx, id)
	if err != nil || a.State.Active() {
		return err
	}
	state := consumers.Live
	run, err := w.fixture.Store.ActiveRun(w.ctx, id)
	switch {
	case err == nil && run.Kind == consumers.RunResync:
		state = consumers.Resyncing
	case err == nil || errors.Is(err, consumers.ErrNoRun) && a.Cursor == 0:
		state = consumers.Importing
	case !errors.Is(err, consumers.ErrNoRun):
		return err
	}
	_, err = w.fixture.Store.SetState(w.ctx, id, state, "")
	return err
}

// unfinished tells what is left to do. An account that stopped with the alarm of an expiry straight after a resync is set
// going again, as its operator would.
func (w *world) unfinished() error {
	for id, box := range w.boxes {
		a, err := w.fixture.Store.Account(w.ctx, id)
		if err != nil {
			return err
		}
		if a.State == consumers.Stopped && w.expired > 1 {
			w.expired--
			if err := w.reconnect(id); err != nil {
				return err
			}
		}
		fetches, err := w.fixture.Store.DueFetches(w.ctx, id, time.Now().Add(24*time.Hour), 10)
		if err != nil {
			return err
		}
		_, err = w.fixture.Store.ActiveRun(w.ctx, id)
		if !errors.Is(err, consumers.ErrNoRun) {
			return fmt.Errorf("%s: a run is still active: %w", id, err)
		}
		if a.State != consumers.Live || a.Cursor != box.HistoryID() || len(fetches) > 0 {
			return fmt.Errorf("%s is %s (%s), cursor %d of %d, %d fetches open",
				id, a.State, a.Reason, a.Cursor, box.HistoryID(), len(fetches))
		}
	}
	return nil
}

// compare holds each mirror against its mailbox.
func (w *world) compare() error {
	for id, box := range w.boxes {
		live, err := w.fixture.Live(w.ctx, id)
		if err != nil {
			return err
		}
		ignore := cmpopts.IgnoreFields(consumers.Message{}, "HistoryID")
		if d := cmp.Diff(box.Live(), live, cmpopts.EquateEmpty(), ignore); d != "" {
			return fmt.Errorf("%s: mirror and mailbox differ (-mailbox +mirror):\n%s", id, d)
		}
		dead, err := w.fixture.DeadLetters(w.ctx, id)
		if err != nil || len(dead) > 0 {
			return fmt.Errorf("%s: dead letters %+v, error %w", id, dead, err)
		}
	}
	return nil
}
