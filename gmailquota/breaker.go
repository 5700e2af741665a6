package gmailquota

import (
	"sync"
	"time"
)

// The breaker keeps calls from a Redis that just failed: first for 100 ms, then twice as long after each failed probe,
// up to 2 s. One call at a time probes.
const (
	breakerFirst = 100 * time.Millisecond
	breakerMost  = 2 * time.Second
)

type breaker struct {
	now     func() time.Time
	mu      sync.Mutex
	open    time.Duration // 0: closed
	until   time.Time
	probing bool
}

// enter lets a call pass, as the probe if the breaker is open, or fails with errBreaker.
func (b *breaker) enter() (probe bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		return false, nil
	}
	if b.awayLocked() {
		return false, errBreaker
	}
	b.probing = true
	return true, nil
}

// away tells whether a call would be kept away.
func (b *breaker) away() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.awayLocked()
}

func (b *breaker) awayLocked() bool { return b.open > 0 && (b.probing || b.now().Before(b.until)) }

// leave reports how it went. Of calls that fail together only the first opens the breaker.
func (b *breaker) leave(probe, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case probe && ok:
		b.open, b.probing = 0, false
	case probe:
		b.probing = false
		b.open = min(2*b.open, breakerMost)
		b.until = b.now().Add(b.open)
	case !ok && b.open == 0:
		b.open = breakerFirst
		b.until = b.now().Add(b.open)
	}
}

// abandon ends a call that learned nothing.
func (b *breaker) abandon(probe bool) {
	if probe {
		b.mu.Lock()
		b.probing = false
		b.mu.Unlock()
	}
}

// left is how long calls are kept away, at least breakerFirst: a wait to quote.
func (b *breaker) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.until.Sub(b.now()), breakerFirst)
}
