// Package history keeps a mirrored account up to date: it reads the changes since the stored cursor, fetches only what is
// new, and stores page by page, moving the cursor in the transaction that stores the data.
//
// What each event costs in units (price list 2026-05), beside the 2 of history.list for a page:
//
//	label change, trash, untrash, deletion of a stored message    0
//	message added and deleted within one page                     0, or 40 if its thread is not stored whole
//	one new message in a thread that is stored, or that it opens 20  messages.get
//	two or more new messages in a thread                         40  threads.get
//	change in a thread that is not stored whole                  40  threads.get
//	two or more in a thread of more than some megabytes          40  and 20 for each new message, messages.get
//	change in such a thread that is not stored whole             80  and 20 for each message not stored; 40 for each 25 of these
//	label change in a thread that a run is about to fetch         0
//	label change of a message outside the scope's labels          0, or 40 if it comes inside
//	label change of a message outside the scope's query           0
//
// A fetch that fails goes to the retry list and the cursor moves on: one bad message never holds up the others, and none
// is lost. The package must not know where notifications come from; their history id is never used as a start.
package history

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// applyTimeout bounds the storing of what was fetched, which goes on while the process stops.
const applyTimeout = 10 * time.Second

// Config says when history is asked again.
type Config struct {
	PollInterval time.Duration // history is due again after this without a notification
	MaxAttempts  int           // real failures of one message before it becomes a dead letter
	// OnApplied, if set, is told each time an account's cursor has moved: everything up to the cursor is stored, or on the
	// retry list. It must return at once.
	OnApplied func(account string, cursor consumers.HistoryID)
}

// Handler works on jobs of kind History.
type Handler struct {
	consumers.Base
	cfg    Config
	labels labelMemory
}

// New returns the handler.
func New(b consumers.Base, cfg Config) *Handler { return &Handler{Base: b, cfg: cfg} }

// Handle applies everything that changed since the cursor. An account without a cursor has nothing to start from: its
// initial sync is called, which gives it one.
func (h *Handler) Handle(ctx context.Context, j consumers.Job) consumers.Outcome {
	acct, err := h.Store.Account(ctx, j.Account)
	if err != nil {
		return h.Failed(ctx, j.Account, err)
	}
	if !acct.State.Active() {
		return consumers.Done()
	}
	changed, err := h.Rescope(ctx, acct)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	if changed || acct.Cursor == 0 {
		return h.callInitialSync(ctx, acct.ID)
	}
	mailbox, err := h.Mailboxes.Mailbox(ctx, acct.ID, gmailquota.Realtime)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	p := &pass{Handler: h, mailbox: mailbox, acct: acct, cursor: acct.Cursor, start: time.Now()}
	if err := p.retries(ctx); err != nil {
		return p.outcome(ctx, err)
	}
	p.start, p.worked = time.Now(), false
	return p.pages(ctx)
}

func (h *Handler) callInitialSync(ctx context.Context, account string) consumers.Outcome {
	err := h.Publish(ctx, consumers.Job{Kind: consumers.InitialSync, Account: account, At: time.Now()})
	if err != nil {
		return h.Failed(ctx, account, err)
	}
	return consumers.Done()
}

// pass is one handling of one account.
type pass struct {
	*Handler
	mailbox consumers.Mailbox
	acct    consumers.Account
	cursor  consumers.HistoryID // as stored
	start   time.Time           // of the slice of time
	worked  bool                // in this slice something was fetched or stored: there is progress before a yield
}

func (p *pass) outcome(ctx context.Context, err error) consumers.Outcome {
	if errors.Is(err, errSlice) || errors.Is(err, consumers.ErrOvertaken) {
		return consumers.Yield()
	}
	return p.Failed(ctx, p.acct.ID, err)
}

// pages reads from the cursor to the end of the history. The current id of the first answer is the last cursor: what
// happens while the later pages are read is read again next time rather than missed. A 404 for a page token is no expired
// cursor: the next handling starts without the token.
func (p *pass) pages(ctx context.Context) consumers.Outcome {
	start, token, current := p.cursor, "", consumers.HistoryID(0)
	for first := true; first || token != ""; first = false {
		page, err := p.mailbox.History(ctx, start, token)
		if err != nil {
			if first && consumers.FaultOf(err) == consumers.Gone {
				return p.resync(ctx)
			}
			return p.Failed(ctx, p.acct.ID, err)
		}
		if first {
			current = page.Current
		}
		token = page.Next
		if err := p.apply(ctx, page.Changes, token == "", current); err != nil {
			return p.outcome(ctx, err)
		}
		if token != "" && p.sliceOver() {
			return consumers.Yield()
		}
	}
	now := time.Now()
	if err := p.Store.HistoryDone(ctx, p.acct.ID, now, now.Add(p.cfg.PollInterval)); err != nil {
		return p.Failed(ctx, p.acct.ID, err)
	}
	return consumers.Done()
}

// apply fetches what one page asks for and stores it in one transaction with the page's changes. If the fetching has to
// stop, what was fetched is stored all the same, with the changes of the records before the first one left undone.
func (p *pass) apply(ctx context.Context, changes []consumers.Change, last bool, current consumers.HistoryID) error {
	items, err := p.plan(ctx, changes)
	if err != nil {
		return err
	}
	f := fetcher{pass: p}
	done, stopped := f.all(ctx, items)
	cut := len(changes)
	if done < len(items) {
		cut = recordStart(changes, items[done].index)
	}
	f.step.Changes = changes[:cut]
	if cut > 0 {
		f.step.Cursor = changes[cut-1].HistoryID
	}
	if last && stopped == nil {
		f.step.Cursor = max(f.step.Cursor, current)
	}
	f.step.Fetched = append(f.step.Fetched, deleted(f.step.Changes)...)
	if err := f.store(ctx); err != nil {
		return err
	}
	if stopped == nil {
		p.learnLabels(ctx, f.step)
	}
	return stopped
}

// moved notes the stored cursor.
func (p *pass) moved(cursor consumers.HistoryID) {
	if cursor <= p.cursor {
		return
	}
	p.cursor = cursor
	if p.cfg.OnApplied != nil {
		p.cfg.OnApplied(p.acct.ID, cursor)
	}
}

func (p *pass) sliceOver() bool { return p.worked && time.Since(p.start) >= consumers.Slice }

// recordStart is the index of the first change of the record that changes[i] belongs to: the cursor can stand only between
// records.
func recordStart(changes []consumers.Change, i int) int {
	for i > 0 && changes[i-1].HistoryID == changes[i].HistoryID {
		i--
	}
	return i
}

// deleted are the ids of the messages that the changes delete: nobody needs to fetch them any more.
func deleted(changes []consumers.Change) []string {
	var ids []string
	for _, c := range changes {
		if c.Kind == consumers.MessageDeleted {
			ids = append(ids, c.MessageID)
		}
	}
	return ids
}

// resync starts a complete comparison, as the cursor is too old. If that happens straight after a resync, whose cursor was
// the mailbox's own id a while ago, another would end the same way: the account stops with an alarm.
func (p *pass) resync(ctx context.Context) consumers.Outcome {
	now := time.Now()
	if p.acct.State == consumers.Live && !p.acct.ResyncAt.IsZero() && now.Sub(p.acct.ResyncAt) < resyncSpan {
		p.Log.Error("history is too old straight after a resync", zap.String("account", consumers.ShortID(p.acct.ID)))
		return p.Halt(ctx, p.acct.ID, consumers.Stopped, "history was too old again straight after a resync; see why, then resync the account")
	}
	_, started, err := p.Store.StartRun(ctx, p.acct.ID, consumers.RunResync, now)
	if err != nil {
		return p.Failed(ctx, p.acct.ID, err)
	}
	if started {
		p.Log.Warn("history is too old, a resync starts", zap.String("account", consumers.ShortID(p.acct.ID)))
	}
	return p.callInitialSync(ctx, p.acct.ID)
}
