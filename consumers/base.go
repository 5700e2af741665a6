package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// republishAfter is when the sweeper tries again what could not be published: long enough for no hot loop while the
// queue is away, short against the minutes after which lost work is looked for.
const republishAfter = 10 * time.Second

// Base is what every handler stands on: the ports, and the one place where a failure becomes an outcome.
type Base struct {
	Mailboxes  Mailboxes
	Store      Store
	Queue      Queue
	Log        *zap.Logger
	Scope      Scope         // what is mirrored, as configured
	SweepAfter time.Duration // published work that is not finished is published again after this
}

// Failed turns the error of a Mailbox or Store call into the job's outcome. An account's fault is stored as its state
// before the job is done, and logged once: later jobs end at the state without asking Gmail.
func (b Base) Failed(ctx context.Context, account string, err error) Outcome {
	if ctx.Err() != nil {
		return RequeueAfter(0, ctx.Err())
	}
	if Removed(err) {
		return Done()
	}
	if wait, ok := WaitOf(err); ok {
		return RequeueAfter(wait, err)
	}
	if FaultOf(err) == AccountFault {
		return b.stopAccount(ctx, account, err)
	}
	return Retry(err)
}

func (b Base) stopAccount(ctx context.Context, account string, err error) Outcome {
	state, reason := Stopped, "Gmail refuses this account"
	var me *MailboxError
	if errors.As(err, &me) {
		if me.State != "" && !me.State.Active() {
			state = me.State
		}
		reason = me.Op + ": " + me.Fault.String()
		if me.Reason != "" {
			reason = me.Op + ": " + me.Reason
		}
	}
	return b.Halt(ctx, account, state, reason)
}

// Rescope brings an account's stored scope to the configured one, and reports whether it was another: then what was read of
// the account is out of date, and a resync may be due.
func (b Base) Rescope(ctx context.Context, acct Account) (changed bool, err error) {
	if acct.Scope.Equal(b.Scope) {
		return false, nil
	}
	changed, err = b.Store.SetScope(ctx, acct.ID, b.Scope, time.Now())
	if changed {
		b.Log.Info("the scope has changed, the mirror follows", zap.String("account", ShortID(acct.ID)))
	}
	return changed, err
}

// Halt stores that an account waits for somebody to act, says so once, and ends the job.
func (b Base) Halt(ctx context.Context, account string, state State, reason string) Outcome {
	changed, err := b.Store.SetState(ctx, account, state, reason)
	switch {
	case Removed(err):
		return Done()
	case err != nil:
		return Retry(fmt.Errorf("store the account's state %s: %w", state, err))
	case changed:
		b.Log.Warn("account waits for somebody to act", zap.String("account", ShortID(account)),
			zap.String("state", string(state)), zap.String("reason", reason))
	}
	return Done()
}

// Publish hands jobs to the queue. If that fails they are noted in the database for the sweeper, soon; an error means
// that this failed too, and the work comes back when its old due time is over.
func (b Base) Publish(ctx context.Context, jobs ...Job) error {
	if len(jobs) == 0 {
		return nil
	}
	err := b.Queue.Publish(ctx, jobs...)
	if err == nil {
		return nil
	}
	b.Log.Warn("jobs not published, the sweeper will", zap.Int("jobs", len(jobs)), zap.Error(err))
	for _, j := range jobs {
		if perr := b.Store.Postpone(ctx, j, time.Now().Add(republishAfter)); perr != nil && !Removed(perr) {
			return fmt.Errorf("publish %s: %w", j.Kind, errors.Join(err, perr))
		}
	}
	return nil
}

// OpenBatches fills a run's window of working batches and publishes those it opened.
func (b Base) OpenBatches(ctx context.Context, account, run string, window int) error {
	now := time.Now()
	batches, err := b.Store.OpenBatches(ctx, run, window, now.Add(b.SweepAfter))
	if err != nil {
		return err
	}
	jobs := make([]Job, len(batches))
	for i, batch := range batches {
		jobs[i] = Job{Kind: ThreadBatch, Account: account, Run: run, Batch: batch.ID, At: now}
	}
	return b.Publish(ctx, jobs...)
}

// Reachable asks Gmail for the cheapest thing, one unit, after a call failed in a passing way: an error means that Gmail is
// away altogether, so that the failure says nothing about the one thread or message and must not count against it.
func Reachable(ctx context.Context, m Mailbox) error {
	_, err := m.Profile(ctx)
	return err
}

// Removed tells that the work's account or run is no longer there, so that there is nothing left to do.
func Removed(err error) bool { return errors.Is(err, ErrNoAccount) || errors.Is(err, ErrNoRun) }

// ShortID is an account id as logs show it: enough to tell accounts apart.
func ShortID(account string) string {
	if len(account) > 8 {
		return account[:8]
	}
	return account
}
