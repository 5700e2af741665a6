package consumers

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

var errStopping = errors.New("the runner is stopping")

// maxAttemptKeys bounds the memory of attempts; when it is full those older than attemptMemory are forgotten.
const (
	maxAttemptKeys = 4096
	attemptMemory  = 3 * backoffMax
)

// poisonRest is when a dropped job has another try: the next version of the program, or Gmail, may have mended it.
const poisonRest = 24 * time.Hour

// settle does what the outcome of j says. The entry belongs to this worker until it is done, parked or removed.
func (r *Runner) settle(e *entry, j Job, out Outcome) {
	switch out.Verdict {
	case VerdictRequeue:
		r.settleRequeue(e, j, out)
	case VerdictRetry:
		r.retry(e, j, out.Cause)
	default:
		r.finish(e)
	}
}

func (r *Runner) settleRequeue(e *entry, j Job, out Outcome) {
	wait := out.After
	if out.Cause != nil {
		wait = max(wait, minPark)
		if _, throttled := WaitOf(out.Cause); throttled {
			r.count(func(s *Stats) { s.Requeued++ })
		}
		r.log.Debug("job comes back", zap.String("account", ShortID(j.Account)), zap.Duration("after", wait), zap.Error(out.Cause))
	}
	r.wait(e, j, wait)
}

func (r *Runner) retry(e *entry, j Job, cause error) {
	a, stopping := r.attempted(e.key, cause)
	if a.poisons >= r.cfg.MaxAttempts && r.drop(e, j, a, cause) {
		return
	}
	r.count(func(s *Stats) { s.Retried++ })
	wait := Backoff(a.n)
	if !stopping {
		r.log.Warn("job failed, comes back", zap.String("account", ShortID(j.Account)), zap.Int("attempt", a.n), zap.Duration("after", wait), zap.Error(cause))
	}
	r.wait(e, j, wait)
}

// attempted counts a failure.
func (r *Runner) attempted(key string, cause error) (a attempt, stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a = r.attempts[key]
	a.n, a.at = a.n+1, time.Now()
	if poison(cause) {
		a.poisons++
	}
	r.attempts[key] = a
	if len(r.attempts) > maxAttemptKeys {
		for k, a := range r.attempts {
			if time.Since(a.at) > attemptMemory {
				delete(r.attempts, k)
			}
		}
	}
	return a, r.stopping
}

// poison tells whether a job that failed so will hardly ever succeed: a panic, or an answer of Gmail that stays the same. No
// outage is, however long it lasts.
func poison(cause error) bool {
	var p *PanicError
	fault := FaultOf(cause)
	return errors.As(cause, &p) || fault == Permanent || fault == Gone
}

// drop writes a dead letter and acknowledges. What the job was about is still open in the database: it has as many tries again
// after poisonRest, or when the letter is replayed, or when something else calls for it. It reports false if the letter cannot
// be stored.
func (r *Runner) drop(e *entry, j Job, a attempt, cause error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := r.store.AddDeadLetter(ctx, DeadLetter{Account: j.Account, Kind: j.Kind, Run: j.Run, Cause: cause.Error(), Attempts: a.poisons, At: time.Now()})
	if err != nil && !Removed(err) {
		r.log.Warn("dead letter not stored", zap.String("account", ShortID(j.Account)), zap.Error(err))
		return false
	}
	r.log.Error("job dropped, see the dead letters", zap.String("account", ShortID(j.Account)), zap.Error(cause))
	r.count(func(s *Stats) { s.Dropped++ })
	// Without it the sweeper's time stands, which was set when the work began.
	_ = r.postpone(j, poisonRest)
	r.finish(e)
	return true
}

func (r *Runner) finish(e *entry) {
	r.mu.Lock()
	delete(r.attempts, e.key)
	r.mu.Unlock()
	r.acknowledge(e)
}

func (r *Runner) acknowledge(e *entry) {
	r.mu.Lock()
	lease := e.lease
	r.board.done(e, time.Now())
	r.ready.Broadcast()
	r.mu.Unlock()
	lease.Ack()
}

// wait puts the entry where it waits: in the lot, in the database, or back in the queue when the process stops.
func (r *Runner) wait(e *entry, j Job, d time.Duration) {
	r.mu.Lock()
	if d > r.cfg.MaxPark || (d > 0 && len(r.board.lot) >= r.cfg.MaxParked) {
		r.mu.Unlock()
		err := r.postpone(j, d)
		r.mu.Lock()
		back := r.board.remove(e)
		r.ready.Broadcast()
		r.mu.Unlock()
		r.giveBack(back, err)
		return
	}
	if r.stopping {
		back := r.board.remove(e)
		r.mu.Unlock()
		r.giveBack(back, errStopping)
		return
	}
	now := time.Now()
	folded := r.board.park(e, now.Add(d), now)
	if folded != nil {
		r.counts.Folded++
	}
	r.rearm()
	r.mu.Unlock()
	if folded != nil {
		folded.Ack()
	}
}

// rearm makes ready what is due and sets the alarm for what is due next. The caller holds the lock.
func (r *Runner) rearm() {
	now := time.Now()
	due := r.board.wake(now)
	r.ready.Broadcast()
	switch {
	case due.IsZero():
	case r.alarm == nil:
		r.alarm = time.AfterFunc(due.Sub(now), r.ring)
	default:
		r.alarm.Reset(due.Sub(now))
	}
}

// ring is the alarm's callback.
func (r *Runner) ring() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.rearm()
	}
}

// postpone writes a wait to the database. It has a context of its own, so that it ends well while the process stops.
func (r *Runner) postpone(j Job, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := r.store.Postpone(ctx, j, time.Now().Add(d))
	if err != nil && !Removed(err) {
		r.log.Warn("wait not stored, the message goes back to the queue", zap.String("account", ShortID(j.Account)), zap.Error(err))
		return err
	}
	r.count(func(s *Stats) { s.Postponed++ })
	return nil
}

// giveBack acknowledges what is safe in the database (err is nil) and returns the rest to the queue.
func (r *Runner) giveBack(ds []Delivery, err error) {
	for _, d := range ds {
		if err == nil {
			d.Ack()
		} else {
			d.Nack()
		}
	}
}
