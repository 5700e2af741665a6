package gmailquota

import (
	"context"
	"sync"
	"time"
)

// Turn keeps a job's place in line over all that it does: what was denied comes back at its turn, and nobody who came
// later is served before. It is for calls of one account and class, one after the other. Safe for concurrent use; the
// zero value has no place yet.
type Turn struct {
	mu     sync.Mutex
	class  Class
	ticket ticket
	ahead  int64
}

type turnKey struct{}

// WithTurn returns a context whose calls are made on t.
func WithTurn(ctx context.Context, t *Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// Expect says that n calls like the next one follow it, at most 1,000: if it must wait, its place is for all of them, up to
// 30 s of the user's refill. Without a Turn in ctx it does nothing.
func Expect(ctx context.Context, n int) {
	if t := turnFrom(ctx); t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ahead = int64(min(max(n, 0), maxAhead))
	}
}

func turnFrom(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}

// show returns the ticket for a class's line, zero if there is none, and the calls that follow.
func (t *Turn) show(c Class) (ticket, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.class != c {
		return ticket{}, t.ahead
	}
	return t.ticket, t.ahead
}

func (t *Turn) keep(c Class, k ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.class, t.ticket = c, k
}

// scoutEvery is how long a bucket may idle because those whose turn it is do not come (their process died): so often at
// least one of this process's waiting calls is to look.
const scoutEvery = 4 * time.Second

// scouts knows until when somebody of an account's and class's line in this process is about to ask, at most scoutEvery
// after the one before.
type scouts struct {
	mu      sync.Mutex
	covered map[scoutKey]time.Time
}

type scoutKey struct {
	account string
	class   Class
}

// quote is when a denied call should ask again: at its turn, or sooner where nobody else would look for so long.
// It is not before the bucket could admit it.
func (s *scouts) quote(k scoutKey, now time.Time, turn, bucket time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.covered[k]
	if !ok || until.Before(now) {
		until = now
	}
	wait := max(min(turn, until.Sub(now)+scoutEvery), bucket)
	if s.covered == nil {
		s.covered = map[scoutKey]time.Time{}
	}
	if due := now.Add(wait); due.After(until) {
		s.covered[k] = due
	}
	if len(s.covered) > 1000 {
		for k, t := range s.covered {
			if t.Before(now) {
				delete(s.covered, k)
			}
		}
	}
	return wait
}
