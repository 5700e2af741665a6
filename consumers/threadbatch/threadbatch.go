// Package threadbatch fetches and stores the threads of one batch of a run. What is stored is never fetched again for the
// same run; a denial puts only the rest back in line. It must not know how the batches came about.
package threadbatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// maxStale is how many answers in a row may be older than what history names of the thread; the last one is taken as it is. Over
// the backoff of a second, two and four that is no delay in Gmail any more: nothing says that a thread's history id is ever as
// high as each record about it.
const maxStale = 4

// maxGone is how many 404s in a row it takes to believe that a listed thread does not exist; they are about 1 and 2 s apart.
const maxGone = 3

var (
	errStale    = errors.New("history names a newer state of a thread than was fetched")
	errNotFound = errors.New("a listed thread was not found, it may be there in a moment")
	errSetAside = errors.New("a thread waits for its next try")
)

// Config sizes the work.
type Config struct {
	Window      int // batches of one account published and not finished
	MaxAttempts int // real failures of one thread before it becomes a dead letter
}

// Handler works on jobs of kind ThreadBatch.
type Handler struct {
	consumers.Base
	cfg   Config
	aside setAside
	large largeThreads
}

// New returns the handler.
func New(b consumers.Base, cfg Config) *Handler { return &Handler{Base: b, cfg: cfg} }

// Handle fetches the threads of a batch that are still open. The job is done only when each of them is stored, gone or a
// dead letter; then the run goes on.
func (h *Handler) Handle(ctx context.Context, j consumers.Job) consumers.Outcome {
	acct, err := h.Store.Account(ctx, j.Account)
	if err != nil {
		return h.Failed(ctx, j.Account, err)
	}
	if !acct.State.Active() {
		return consumers.Done()
	}
	batch, open, err := h.Store.Batch(ctx, acct.ID, j.Batch)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	if !open {
		return h.resume(ctx, acct.ID)
	}
	mailbox, err := h.Mailboxes.Mailbox(ctx, acct.ID, gmailquota.Backfill)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	if out, complete := h.fetch(ctx, mailbox, batch); !complete {
		return out
	}
	run, err := h.Store.FinishBatch(ctx, batch)
	if err != nil {
		return h.Failed(ctx, acct.ID, err)
	}
	h.aside.forget(batch.ID)
	h.large.forgetBatch(batch.ID)
	return h.goOn(ctx, run)
}

// fetch works through the batch; complete tells that no thread of it is left. A thread that failed is set aside for a while,
// and keeps only itself waiting.
func (h *Handler) fetch(ctx context.Context, mailbox consumers.Mailbox, b consumers.Batch) (out consumers.Outcome, complete bool) {
	var left rest
	reachable := false
	start := time.Now()
	for i, id := range b.Threads {
		if i > 0 && time.Since(start) >= consumers.Slice {
			return consumers.Yield(), false
		}
		if until := h.aside.until(b.ID, id); until.After(time.Now()) {
			left.add(until, errSetAside)
			continue
		}
		gmailquota.Expect(ctx, len(b.Threads)-i-1)
		err := h.fetchOne(ctx, mailbox, b, id)
		if err != nil && !reachable && ctx.Err() == nil && countable(err) {
			if away := consumers.Reachable(ctx, mailbox); away != nil {
				return h.Failed(ctx, b.Account, away), false
			}
			reachable = true
		}
		switch {
		case err == nil:
		case errors.Is(err, errSlice):
			return consumers.Yield(), false
		case errors.Is(err, errStale), errors.Is(err, errNotFound):
			left.add(h.aside.until(b.ID, id), err)
		case ctx.Err() != nil || !countable(err):
			return h.Failed(ctx, b.Account, err), false
		default:
			until, serr := h.failed(ctx, b, id, err)
			if serr != nil {
				return h.Failed(ctx, b.Account, serr), false
			}
			if !until.IsZero() {
				left.add(until, err)
			}
		}
	}
	if left.cause != nil {
		return consumers.RequeueAfter(time.Until(left.due), left.cause), false
	}
	return consumers.Done(), true
}

// failed counts a failure of a thread and returns when it may be tried again, zero if it was given up.
func (h *Handler) failed(ctx context.Context, b consumers.Batch, id string, cause error) (time.Time, error) {
	now := time.Now()
	dead, err := h.Store.ThreadFailed(ctx, b, id, cause.Error(), h.cfg.MaxAttempts, now)
	if err != nil {
		return time.Time{}, err
	}
	if dead {
		h.Log.Error("thread given up, see the dead letters", zap.String("account", consumers.ShortID(b.Account)), zap.Error(cause))
		return time.Time{}, nil
	}
	return h.aside.failed(b.ID, id, now), nil
}

// rest is what a pass over the batch leaves: when the first of it may be tried again, and why it was left.
type rest struct {
	due   time.Time
	cause error
}

func (r *rest) add(due time.Time, cause error) {
	if r.cause == nil || due.Before(r.due) {
		r.due, r.cause = due, cause
	}
}

// fetchOne brings one thread into the store. A panic is this thread's failure.
func (h *Handler) fetchOne(ctx context.Context, mailbox consumers.Mailbox, b consumers.Batch, id string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = consumers.Caught(h.Log, b.Account, p)
		}
	}()
	defer consumers.LetGo(ctx)
	thread, err := h.thread(ctx, mailbox, b, id)
	if err != nil {
		switch {
		case consumers.FaultOf(err) != consumers.Gone:
			return err
		case h.aside.notFound(b.ID, id, time.Now()) < maxGone:
			return errNotFound
		}
		return h.Store.ThreadGone(ctx, b, id, time.Now())
	}
	complete, err := h.Store.SaveThread(ctx, b, thread, time.Now())
	if err != nil {
		return fmt.Errorf("store a thread: %w", err)
	}
	h.large.forget(b.ID, id)
	switch {
	case complete:
		return nil
	case h.aside.stale(b.ID, id, time.Now()) < maxStale:
		return errStale
	}
	h.Log.Debug("thread stays older than what history names, taken as it is", zap.String("account", consumers.ShortID(b.Account)))
	if err := h.Store.AcceptThread(ctx, b, thread, time.Now()); err != nil {
		return fmt.Errorf("store a thread as it is: %w", err)
	}
	return nil
}

// countable tells whether err is a failure that may be this one thread's fault. A throttle and an account's fault are not. A
// failure of the store is: if the store as a whole is away, it will not take the count either.
func countable(err error) bool {
	fault := consumers.FaultOf(err)
	return !errors.Is(err, errSlice) && !errors.Is(err, errStale) && !errors.Is(err, errNotFound) && !consumers.Removed(err) && (fault == consumers.Passing || fault == consumers.Permanent)
}

// resume is for a batch that is finished already: a crash may have come between its end and what follows from it.
func (h *Handler) resume(ctx context.Context, account string) consumers.Outcome {
	run, err := h.Store.ActiveRun(ctx, account)
	if err != nil {
		return h.Failed(ctx, account, err)
	}
	return h.goOn(ctx, run)
}

// goOn opens the next batches, and calls the initial sync when the listing has room to go on or the run is at its end.
func (h *Handler) goOn(ctx context.Context, run consumers.Run) consumers.Outcome {
	if err := h.OpenBatches(ctx, run.Account, run.ID, h.cfg.Window); err != nil {
		return h.Failed(ctx, run.Account, err)
	}
	unfinished := run.Progress.Pending + run.Progress.Working
	if (!run.Listed && unfinished < h.cfg.Window) || unfinished == 0 {
		next := consumers.Job{Kind: consumers.InitialSync, Account: run.Account, Run: run.ID, At: time.Now()}
		if err := h.Publish(ctx, next); err != nil {
			return h.Failed(ctx, run.Account, err)
		}
	}
	return consumers.Done()
}
