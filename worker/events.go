package worker

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// calmAfter is how long no decision may have failed until Redis counts as back.
const calmAfter = time.Second

// guardEvents says what an operator must know of the guard, which does not log: that Redis is away and back, each once,
// and what Gmail refused. Safe for concurrent use.
type guardEvents struct {
	log *zap.Logger

	mu      sync.Mutex
	refused map[string]int64 // by the bucket that pauses
	away    bool
	trouble time.Time // when Redis last gave no decision
}

func newGuardEvents(log *zap.Logger) *guardEvents {
	return &guardEvents{log: log, refused: map[string]int64{}}
}

// observe is the guard's observer.
func (g *guardEvents) observe(e gmailquota.Event) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch e.Kind {
	case gmailquota.Refused:
		g.refused[e.Bucket]++
		g.log.Warn("Gmail refused a call, others wait", zap.String("of", e.Bucket), zap.String("reason", e.Reason), zap.Duration("for", e.Wait))
	case gmailquota.DayReached:
		g.log.Warn("the project's units of the day are used up, imports wait", zap.Int64("units", e.Units), zap.Duration("for", e.Wait))
	case gmailquota.Fallback, gmailquota.Unavailable:
		g.trouble = now
		if g.away {
			return
		}
		g.away = true
		calls := "let through, see guard.failOpen"
		if e.Wait > 0 {
			calls = "denied until it is back, see guard.failOpen"
		}
		g.log.Error("Redis gives no decisions", zap.String("calls", calls), zap.Error(e.Err))
	case gmailquota.Admitted, gmailquota.Denied:
		// Without Redis one of the events above comes right before these.
		if g.away && now.Sub(g.trouble) > calmAfter {
			g.away = false
			g.log.Info("Redis decides again")
		}
	}
}

// refusals counts what Gmail refused, by the bucket that paused for it.
func (g *guardEvents) refusals() map[string]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.refused)
}
