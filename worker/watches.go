package worker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const (
	// watchLife is how long a watch lasts at Gmail; it says to renew it daily.
	watchLife = 7 * 24 * time.Hour
	// watchRenewBefore renews a watch a day after it was made, with six days in hand for whatever fails.
	watchRenewBefore = watchLife - 24*time.Hour
	// watchPass is the time between two looks for watches that are due. What failed is tried again in the next.
	watchPass = time.Minute
	// watchPauseMax is the longest pause after failures in a row: a topic without rights fails for every account.
	watchPauseMax = time.Hour
	// watchesAPass bounds one pass: at 100 units each this is a quarter of a new project's minute, and the earliest expiry
	// comes first.
	watchesAPass = 3000
)

// renewWatches keeps Gmail pushing, until ctx ends. The first watch of an account is made by its import; renewing never
// touches the history cursor.
func (w *Worker) renewWatches(ctx context.Context) {
	if w.cfg.PubSub.Topic == "" {
		return
	}
	tick := time.NewTicker(watchPass)
	defer tick.Stop()
	failures := watchFailures{}
	for {
		if err := w.renewDueWatches(ctx, failures); err != nil && ctx.Err() == nil {
			w.log.Error("watch renewal failed, trying again", zap.Duration("after", watchPass), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchFailures are the accounts whose watch failed last, and when it is tried again.
type watchFailures map[string]watchFailure

type watchFailure struct {
	pause time.Duration
	next  time.Time
}

// failed doubles the account's pause.
func (f watchFailures) failed(account string, now time.Time) {
	pause := min(max(2*f[account].pause, watchPass), watchPauseMax)
	f[account] = watchFailure{pause, now.Add(pause)}
}

func (w *Worker) renewDueWatches(ctx context.Context, failures watchFailures) error {
	due, err := w.mirror.store.WatchesDue(ctx, time.Now().Add(watchRenewBefore), watchesAPass+len(failures))
	if err != nil {
		return err
	}
	for _, a := range due {
		// An account without a cursor is watched by its import.
		if a.Cursor == 0 || time.Now().Before(failures[a.ID].next) {
			continue
		}
		err := w.renewWatch(ctx, a)
		if err == nil {
			delete(failures, a.ID)
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		failures.failed(a.ID, time.Now())
		w.log.Warn("watch not renewed", zap.String("account", consumers.ShortID(a.ID)),
			zap.Time("expires", a.WatchExpires), zap.Error(err))
	}
	return nil
}

func (w *Worker) renewWatch(ctx context.Context, a consumers.Account) error {
	mailbox, err := w.mirror.gmail.Mailbox(ctx, a.ID, gmailquota.Maintenance)
	if err != nil {
		return err
	}
	watch, err := mailbox.Watch(ctx)
	if err != nil {
		return err // also when somebody has to act: polling goes on, and tells whether it is the account or the topic
	}
	return w.mirror.store.SetWatch(ctx, a.ID, watch)
}
