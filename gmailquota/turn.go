package gmailquota

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Turn keeps a job's place in the line over all that it does: Acquire and Wait show its ticket for calls whose context
// carries it and whose Request has none, and keep the tickets that they are given. It is for calls of one account and
// class, one after the other. Safe for concurrent use; the zero value has no place.
type Turn struct {
	mu     sync.Mutex
	ticket string
	ahead  int
}

type turnKey struct{}

// WithTurn returns a context whose calls are made on t.
func WithTurn(ctx context.Context, t *Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// Expect says that n calls like the next one follow it, so that a place in the line, if it needs one, is for all of them.
// Without a Turn in ctx it does nothing.
func Expect(ctx context.Context, n int) {
	if t, ok := ctx.Value(turnKey{}).(*Turn); ok {
		t.mu.Lock()
		t.ahead = n
		t.mu.Unlock()
	}
}

// fill gives a request what the context's Turn has. It returns the Turn, nil if the request does not go by one.
func fillTurn(ctx context.Context, r *Request) *Turn {
	t, ok := ctx.Value(turnKey{}).(*Turn)
	if !ok || r.Ticket != "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Ticket, r.Ahead = t.ticket, max(r.Ahead, t.ahead)
	return t
}

func (t *Turn) keep(ticket string) {
	if t == nil || ticket == "" {
		return
	}
	t.mu.Lock()
	t.ticket = ticket
	t.mu.Unlock()
}

// text is how a ticket goes out: opaque to those who hold it.
func (t ticket) text(c Class) string {
	if t.to == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d-%d", c, t.from, t.to)
}

// parseTicket returns the ticket for a class's line, zero for any other text.
func parseTicket(s string, c Class) ticket {
	var class Class
	var t ticket
	if s == "" {
		return t
	}
	if n, err := fmt.Sscanf(s, "%d:%d-%d", &class, &t.from, &t.to); n != 3 || err != nil || class != c || t.from < 0 ||
		t.to <= t.from || t.to-t.from > 2*lineUS {
		return ticket{}
	}
	return t
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
