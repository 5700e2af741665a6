package gmailapi

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const (
	// attempts of one call; only passing faults are tried again here, and each attempt is charged.
	attempts = 3
	// firstBackoff is the mean pause before the second attempt; the one before the third is four times as long.
	firstBackoff = 200 * time.Millisecond
	// headerTimeout bounds the wait for an answer to begin, and attemptTimeout a whole attempt with its answer.
	headerTimeout  = time.Minute
	attemptTimeout = 3 * time.Minute
	// textPatience bounds the waiting for the text of a message that has been charged.
	textPatience = 30 * time.Second
)

// call makes one Gmail call, as the mailbox's account and class: again after a passing fault, and once after a token
// that Gmail did not take. What is denied or throttled is the caller's to bring back. The error is a
// *consumers.MailboxError.
func call[T any](ctx context.Context, m *mailbox, op string, do func(context.Context) (T, error)) (T, error) {
	ctx = gmailquota.WithCall(ctx, m.account, m.class)
	refreshed := false
	pause := firstBackoff
	for try := 1; ; try++ {
		v, err := attempt(ctx, do)
		if err == nil {
			return v, nil
		}
		failure := classify(op, err, time.Now())
		switch {
		case failure.Status == 401 && !refreshed:
			refreshed = true // the transport has rejected the token
		case failure.Fault == consumers.Passing && try < attempts && sleep(ctx, jitter(pause)) == nil:
			pause *= 4
		default:
			var none T
			return none, failure
		}
	}
}

func attempt[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return do(ctx)
}

// jitter spreads a pause over half to one and a half times its length.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// sleep returns early, with the cause, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
