package gmailquota

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of event.
const (
	Admitted    EventKind = iota // Method, Class, Units, Wait, Took
	Denied                       // Method, Class, Bucket, Wait, Took
	Refused                      // Gmail refused a call: Bucket (the penalty), Wait (until its end), Reason
	Fallback                     // Redis gave no decision, the local buckets decide: Err
	Unavailable                  // Redis gave no decision, and nobody else decides: Err; Wait if the call fails
	DayReached                   // this process's call reached Config.DailyLimit: Units, Wait (until the day turns)
)

func (k EventKind) String() string {
	return [...]string{"admitted", "denied", "refused", "fallback", "unavailable", "day reached"}[k]
}

// Event is something that happened to one call. It names no account.
type Event struct {
	Kind   EventKind
	Method string
	Class  Class
	Bucket string
	Reason string // Gmail's, as Refusal.Reason
	Units  int64
	Wait   time.Duration
	Took   time.Duration // to decide
	Err    error
}

// Observer is told of each event, from the goroutine of the call.
type Observer func(Event)

type counters struct {
	admitted, denied, units, refunded, decisions, redisCalls, unavailable, fallback atomic.Int64
}

// Stats counts what this Guard did since it was made.
type Stats struct {
	Admitted, Denied int64
	Units            int64 // charged, less what was refunded
	Decisions        int64 // that Redis gave, several in a run of the script when callers ask at the same moment
	RedisCalls       int64 // runs of the script, releases and refusals included
	Unavailable      int64 // decisions that Redis did not give
	Fallback         int64 // of these, decided by the local buckets
}

// Stats returns the counts so far.
func (g *Guard) Stats() Stats {
	c := &g.counters
	return Stats{
		Admitted: c.admitted.Load(), Denied: c.denied.Load(), Units: c.units.Load() - c.refunded.Load(),
		Decisions: c.decisions.Load(), RedisCalls: c.redisCalls.Load(), Unavailable: c.unavailable.Load(), Fallback: c.fallback.Load(),
	}
}

// BucketState is one bucket at one moment.
type BucketState struct {
	Tokens   int64 // units, to the nearest; negative while calls are reserved ahead
	Capacity int64 // units
	Refill   int64 // units a minute, as configured
	// Effective is the refill for now: less than configured for a while after Gmail refused calls and stated no time.
	Effective int64
	FullIn    time.Duration // until Capacity is reached, if nobody asks
	Penalty   time.Duration // what is left of the pause after a refusal
}

// Snapshot is what Redis holds for one account and its project.
type Snapshot struct {
	User, Project BucketState
	Day           Day
	// InFlight is how many calls are reserved or under way, all processes together; up to a quarter of the cap may have ended
	// in the last 10 s, see Grant.Release.
	InFlight    int
	InFlightCap int // lower than configured for a while after a concurrency refusal
}

// Day is what the project used of the day's units.
type Day struct {
	Used, Limit int64         // units; Limit 0: none is set
	TurnsIn     time.Duration // in summer Gmail's own day turns an hour earlier
}

// Snapshot reads an account's state and changes nothing. An account or project that Redis does not know is shown as the
// next decision would find it.
func (g *Guard) Snapshot(ctx context.Context, account string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RedisTimeout)
	defer cancel()
	pipe := g.rdb.Pipeline()
	clock := pipe.Time(ctx)
	stored := pipe.MGet(ctx, g.projectKey, g.userKey(account))
	if _, err := pipe.Exec(ctx); err != nil {
		return Snapshot{}, fmt.Errorf("gmailquota: reading the buckets from Redis: %w", err)
	}
	now, l := clock.Val().UnixMicro(), g.plan.limits()
	p, u := g.read(stored, now, l)
	return Snapshot{
		User:     g.plan.user.state(u.fullAt, &u.penalty, now),
		Project:  g.plan.project.state(p.fullAt, &p.penalty, now),
		Day:      p.today(now, l),
		InFlight: int(u.live), InFlightCap: int(u.inFlightCap(now, l.inFlight)),
	}, nil
}

func (g *Guard) read(stored *redis.SliceCmd, now int64, l limits) (projectState, userState) {
	text := func(i int) string { s, _ := stored.Val()[i].(string); return s }
	p, ok := parseProject(text(0))
	if !ok {
		p = newProject(now, l)
	}
	p.settle(now, l)
	u, ok := parseUser(text(1))
	if !ok {
		u = newUser(now, &p, l)
	}
	u.settle(now, l)
	return p, u
}

func (b bucket) state(fullAt int64, s *penalty, now int64) BucketState {
	rate := s.permille(now)
	return BucketState{
		Tokens: b.tokens(fullAt, now) * rate / fullRate, Capacity: b.units * rate / fullRate, Refill: b.refill,
		Effective: b.refill * rate / fullRate,
		FullIn:    time.Duration(max(fullAt-now, 0)) * time.Microsecond,
		Penalty:   time.Duration(max(s.end-now, 0)) * time.Microsecond,
	}
}
