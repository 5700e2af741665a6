// Package initialsync lists an account's whole mailbox, page by page, and hands what it finds to the thread batches: for
// an account's first import and for the comparison after its cursor became too old.
//
// Everything it knows of its progress is in the store, so a job may come twice, late, or after a crash at any point. It
// fetches no thread itself and must not know how one is stored.
package initialsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// watchFresh: a watch that lasts longer than this is not asked for again; Gmail gives seven days, and it costs 100 units.
const watchFresh = 24 * time.Hour

// Config says how much of a mailbox is under way at once.
type Config struct {
	BatchSize int // threads in a batch
	Window    int // batches of one account published and not finished; the listing goes on as they finish
}

// Handler works on jobs of kind InitialSync.
type Handler struct {
	consumers.Base
	cfg Config
}

// New returns the handler.
func New(b consumers.Base, cfg Config) *Handler { return &Handler{b, cfg} }

// Handle takes the account's active run a step further: the baseline, then pages of the listing while the window has
// room, then the end of the run. An account whose state asks for a run and has none gets one.
func (h *Handler) Handle(ctx context.Context, j consumers.Job) consumers.Outcome {
	acct, err := h.Store.Account(ctx, j.Account)
	if err != nil {
		return h.Failed(ctx, j.Account, err)
	}
	if !acct.State.Active() {
		return consumers.Done()
	}
	if changed, err := h.Rescope(ctx, acct); err != nil {
		return h.Failed(ctx, acct.ID, err)
	} else if changed {
		return consumers.Yield()
	}
	run, err := h.Store.ActiveRun(ctx, acct.ID)
	if errors.Is(err, consumers.ErrNoRun) {
		run, err = h.firstRun(ctx, acct)
	}
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	mailbox, err := h.Mailboxes.Mailbox(ctx, acct.ID, gmailquota.Backfill)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	more, err := h.advance(ctx, mailbox, acct, run)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	if more {
		return consumers.Yield()
	}
	return consumers.Done()
}

// firstRun starts the run that an account's state asks for; ErrNoRun if it asks for none.
func (h *Handler) firstRun(ctx context.Context, acct consumers.Account) (consumers.Run, error) {
	kind, asked := map[consumers.State]consumers.RunKind{
		consumers.Importing: consumers.RunImport, consumers.Resyncing: consumers.RunResync,
	}[acct.State]
	if !asked {
		return consumers.Run{}, consumers.ErrNoRun
	}
	run, _, err := h.Store.StartRun(ctx, acct.ID, kind, time.Now())
	return run, err
}

// advance reports whether there is more to do at once: the listing could have gone on but for its slice of time, or
// another run has taken the place of this one (the scope changed). That one has its own baseline to pin, and its own query.
func (h *Handler) advance(ctx context.Context, mailbox consumers.Mailbox, acct consumers.Account, run consumers.Run) (more bool, err error) {
	id := run.ID
	if run.Baseline == 0 {
		if run, err = h.begin(ctx, acct, run); err != nil {
			return false, err
		}
	}
	for start := time.Now(); ; {
		if run.ID != id || run.Baseline == 0 {
			return true, nil
		}
		if run.Progress.Pending > 0 {
			if err := h.OpenBatches(ctx, run.Account, run.ID, h.cfg.Window); err != nil {
				return false, err
			}
		}
		switch {
		case run.Listed && idle(run):
			return false, h.end(ctx, run)
		case run.Listed || !h.hasRoom(run):
			return false, nil
		case time.Since(start) >= consumers.Slice:
			return true, nil
		}
		if run, err = h.nextPage(ctx, mailbox, run); err != nil {
			return false, err
		}
	}
}

// begin pins the baseline, which must be read before anything is listed: what changes later comes after it in history.
// It is stored last, so that a run with a baseline also has its watch and labels.
func (h *Handler) begin(ctx context.Context, acct consumers.Account, run consumers.Run) (consumers.Run, error) {
	mailbox, err := h.Mailboxes.Mailbox(ctx, acct.ID, gmailquota.Maintenance)
	if err != nil {
		return run, err
	}
	profile, err := mailbox.Profile(ctx)
	if err != nil {
		return run, err
	}
	if profile.HistoryID == 0 {
		return run, errors.New("the profile has no history id, so the run has no baseline")
	}
	if time.Until(acct.WatchExpires) < watchFresh {
		if err := h.watch(ctx, mailbox, acct.ID); err != nil {
			return run, err
		}
	}
	labels, err := mailbox.Labels(ctx)
	if err != nil {
		return run, err
	}
	if err := h.Store.SaveLabels(ctx, acct.ID, labels, time.Now()); err != nil {
		return run, err
	}
	if n := h.Scope.Unknown(labels); n > 0 {
		h.Log.Warn("the mailbox does not have all labels of the scope: see their spelling",
			zap.String("account", consumers.ShortID(acct.ID)), zap.Int("unknown", n))
	}
	if err := h.Store.PinBaseline(ctx, run.ID, profile.HistoryID); err != nil {
		return run, err
	}
	h.Log.Info("listing starts", zap.String("account", consumers.ShortID(acct.ID)), zap.String("run", string(run.Kind)))
	return h.Store.ActiveRun(ctx, acct.ID)
}

// watch asks Gmail to push. A refusal that somebody has to act on is one of the topic, since the profile was read a moment
// ago: it must not stop the account, whose changes polling finds.
func (h *Handler) watch(ctx context.Context, mailbox consumers.Mailbox, account string) error {
	w, err := mailbox.Watch(ctx)
	if err != nil {
		if fault := consumers.FaultOf(err); fault != consumers.AccountFault && fault != consumers.Permanent {
			return err
		}
		h.Log.Warn("no watch, so no pushes: changes are found by polling; see the topic's rights",
			zap.String("account", consumers.ShortID(account)), zap.Error(err))
		return nil
	}
	if w.Expires.IsZero() {
		return nil
	}
	return h.Store.SetWatch(ctx, account, w)
}

// nextPage stores one page with its token before anything of it is published, so that a crash loses none of it.
func (h *Handler) nextPage(ctx context.Context, mailbox consumers.Mailbox, run consumers.Run) (consumers.Run, error) {
	page, err := mailbox.ListThreads(ctx, run.PageToken)
	if err != nil {
		return run, h.refused(ctx, run, err)
	}
	if err := h.Store.AddPage(ctx, run.ID, run.PageToken, page, h.cfg.BatchSize); err != nil {
		return run, err
	}
	return h.Store.ActiveRun(ctx, run.Account)
}

// refused is for a page that Gmail did not give. A token that it does not know any more, as days went by, never comes right:
// the listing begins again. The error stands all the same, so that the backoff grows while every token is refused.
func (h *Handler) refused(ctx context.Context, run consumers.Run, cause error) error {
	if fault := consumers.FaultOf(cause); run.PageToken == "" || (fault != consumers.Permanent && fault != consumers.Gone) {
		return cause
	}
	if err := h.Store.Relist(ctx, run.ID, run.PageToken); err != nil {
		return err
	}
	return fmt.Errorf("the listing begins again, its page token is refused: %w", cause)
}

// end closes a run whose threads are all accounted for. A resync checks before that what its listing did not name: only
// a complete listing tells that something may be gone.
func (h *Handler) end(ctx context.Context, run consumers.Run) error {
	if run.Kind == consumers.RunResync && !run.AbsentQueued {
		queued, err := h.Store.QueueAbsent(ctx, run.ID, h.cfg.BatchSize)
		if err != nil {
			return err
		}
		if queued > 0 {
			return h.OpenBatches(ctx, run.Account, run.ID, h.cfg.Window)
		}
	}
	now := time.Now()
	finished, err := h.Store.FinishRun(ctx, run.ID, now)
	if err != nil || !finished {
		return err
	}
	h.Log.Info("run finished", zap.String("account", consumers.ShortID(run.Account)), zap.String("run", string(run.Kind)),
		zap.Int("threads", run.Progress.Listed), zap.Int("failed", run.Progress.Failed))
	return h.Publish(ctx, consumers.Job{Kind: consumers.History, Account: run.Account, At: now})
}

func (h *Handler) hasRoom(run consumers.Run) bool {
	return run.Progress.Pending+run.Progress.Working < h.cfg.Window
}

// idle tells that none of the run's threads is still to be fetched.
func idle(run consumers.Run) bool {
	return run.Progress.Open == 0 && run.Progress.Pending == 0 && run.Progress.Working == 0
}
