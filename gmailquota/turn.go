package gmailquota

import (
	"context"
	"maps"
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
	due    time.Time // when the place begins, by this process's clock
	pace   time.Time // when to ask again
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

// keep takes a place that begins at due.
func (t *Turn) keep(c Class, k ticket, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.class, t.ticket, t.due = c, k, due
}

// askAt sets when Wait asks next. A job that reserves as soon as it may is as far ahead as it may be, and is denied when
// anything else is charged before it asks again; so it asks when half of that is left. It is served no later for that,
// and others have less to wait for.
func (t *Turn) askAt(at time.Time) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pace = at
	}
}

// early is how long it is until then.
func (t *Turn) early(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace.Sub(now)
}

// before is how long it is until the place begins.
func (t *Turn) before(now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due.Sub(now)
}

// scoutEvery is how long a bucket may idle because those whose turn it is do not come (their process died): so often at
// least one of this process's waiting calls is to look.
const scoutEvery = 4 * time.Second

// scouts knows until when somebody of an account's and class's line in this process is about to ask, at most scoutEvery
// after the one before.
type scouts struct {
	mu      sync.Mutex
	covered times
	served  times // when somebody was admitted last
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
	until, ok := s.covered.of[k]
	if !ok || until.Before(now) {
		until = now
	}
	wait := max(min(turn, until.Sub(now)+scoutEvery), bucket)
	if due := now.Add(wait); due.After(until) {
		s.covered.note(k, due, now)
	}
	return wait
}

// admitted notes that somebody was, so that nobody needs to look for a while.
func (s *scouts) admitted(k scoutKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served.note(k, now, now.Add(-scoutEvery))
}

// needless is for how long a call that comes before its turn need not look, as those before it are being served.
func (s *scouts) needless(k scoutKey, now time.Time, turn time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(turn, s.served.of[k].Add(scoutEvery).Sub(now))
}

// times is a time for each line; the old ones are forgotten.
type times struct {
	of      map[scoutKey]time.Time
	sweepAt int
}

func (m *times) note(k scoutKey, t, old time.Time) {
	if m.of == nil {
		m.of = map[scoutKey]time.Time{}
	}
	m.of[k] = t
	if len(m.of) >= m.sweepAt {
		maps.DeleteFunc(m.of, func(_ scoutKey, t time.Time) bool { return t.Before(old) })
		m.sweepAt = max(2*len(m.of), 100)
	}
}
