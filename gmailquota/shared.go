package gmailquota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file asks Redis: each function is one run of the script.

// errNotAsked is why there is no charge that Redis may have made.
var (
	errNotAsked = errors.New("not asked")
	// errBreaker stands for the Redis error that opened the breaker.
	errBreaker = fmt.Errorf("%w: Redis failed a moment ago", errNotAsked)
	// errCrowd opens no breaker: Redis answers, but not so many.
	errCrowd = fmt.Errorf("%w: its turn did not come within RedisTimeout", errNotAsked)
)

// run runs one operation of the script within RedisTimeout. NOSCRIPT is cured by one EVAL; any other error means that
// there is no answer. A context that ends before Redis had its time says nothing about Redis.
func (g *Guard) run(ctx context.Context, op string, keys []string, args ...any) ([]int64, error) {
	probe, err := g.breaker.enter()
	if err != nil {
		return nil, err
	}
	learned := false // or the client panicked
	defer func() {
		if !learned {
			g.breaker.abandon(probe)
		}
	}()
	all := make([]any, 0, 1+len(g.common)+len(args))
	all = append(append(append(all, op), g.common[:]...), args...)
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, g.cfg.RedisTimeout)
	defer cancel()
	g.counters.redisCalls.Add(1)
	answer, err := g.script.Run(limited, g.rdb, keys, all...).Int64Slice()
	if err != nil && over(ctx) != nil && time.Since(start) < g.cfg.RedisTimeout {
		return nil, err
	}
	learned = true
	g.breaker.leave(probe, err == nil || moving(err))
	return answer, err
}

// moving says that a node of a cluster is well but cannot decide while keys move to another node. That lasts for
// milliseconds, and other users' keys may be together: no reason to keep calls away.
func moving(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask || redis.IsTryAgainError(err)
}

// over is why ctx has ended, or nil. The client gives the deadline to the socket, which may notice it before ctx does.
func over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// decideShared asks Redis. Calls that ended meanwhile and what an outage left behind ride along.
func (g *Guard) decideShared(ctx context.Context, gr *Grant) (decision, error) {
	n := g.note(gr.account)
	released := g.releases.take(gr.account)
	answer, err := g.ask(ctx, g.userKey(gr.account), gr.charge.encode(n.hold[0], n.hold[1], n.told[0], n.told[1], released.ids))
	if err == nil && (answer[0] < 0 || answer[0] >= int64(len(bucketNames))) {
		err = fmt.Errorf("the script answered %v", *answer)
	}
	if err != nil {
		g.releases.put(gr.account, released)
		return decision{}, err
	}
	d := decision{answer[0], answer[1], answer[2], answer[3], answer[4], ticket{answer[5], answer[6]}, answer[7]}
	clock, born := answer[8], answer[9]
	gr.at = clock + d.wait
	g.learn(n, d, clock, born)
	return d, nil
}

// notes is what this process knows of an account and of the project when it asks Redis, and tells it.
type notes struct {
	account string
	known   [2]known
	owed    [2]debt // by the local buckets
	said    [2]heard
	told    [2]told // said, as from now, with what other processes may have charged since
	hold    [2]int64
}

func (g *Guard) note(account string) notes {
	now := g.micros()
	n := notes{account: account, owed: g.local.debt(account, now)}
	n.known[0], n.known[1] = g.memory.of(account, now)
	for i, b := range [2]bucket{g.plan.user, g.plan.project} {
		k, owed := n.known[i], n.owed[i]
		n.said[i] = k.tell(now)
		if owed.any {
			n.said[i] = heard{localBorn, max(k.latest(), owed.full(now, b.cap))}
		}
		n.told[i] = told{n.said[i].born, max(n.said[i].full-now, 0)}
	}
	if n.told[0].us > 0 && !n.owed[0].any { // of its local buckets each process tells all
		n.told[0].us += g.plan.others
	}
	n.hold = [2]int64{n.owed[0].hold(now), n.owed[1].hold(now)}
	return n
}

// learn takes in what Redis answered, at a time of its own clock. It is read here after it was there, so that nothing
// seems to be over before it is.
func (g *Guard) learn(n notes, d decision, clock, born int64) {
	now := g.micros()
	answer := [2]heard{{born, 0}, {born, 0}}
	if d.code == admitted {
		answer[0].full, answer[1].full = now+d.user-clock, now+d.project-clock
	}
	g.memory.learn(n.account, now, n.known, n.said, answer)
	g.local.settled(n.account, now, n.owed)
}

// withoutRedis decides when Redis did not. For a call whose context has ended nobody decides.
func (g *Guard) withoutRedis(ctx context.Context, gr *Grant, cause error) (decision, error) {
	if err := over(ctx); err != nil {
		g.releases.add(gr.account, gr.charge.id, true) // Redis may have charged it
		return decision{}, err
	}
	g.counters.unavailable.Add(1)
	if !errors.Is(cause, errNotAsked) {
		g.releases.add(gr.account, gr.charge.id, true)
	}
	if !g.failOpen.Load() {
		wait := g.breaker.left()
		g.observe(Event{Kind: Unavailable, Wait: wait, Err: cause})
		return decision{}, &UnavailableError{Wait: wait, Err: cause}
	}
	if !g.cfg.LocalFallback {
		gr.where = unmetered
		g.local.passed(gr.account)
		g.observe(Event{Kind: Unavailable, Err: cause})
		return decision{}, nil
	}
	g.counters.fallback.Add(1)
	g.observe(Event{Kind: Fallback, Err: cause})
	gr.where = inLocal
	return g.local.decide(gr), nil
}

func (g *Guard) refundShared(ctx context.Context, gr *Grant) {
	d := gr.decision
	_, err := g.run(ctx, "refund", []string{g.projectKey, g.userKey(gr.account)},
		gr.charge.id, d.user, d.taken, d.project, gr.charge.project, g.unitsOfToday(gr))
	if err != nil {
		g.releases.add(gr.account, gr.charge.id, true)
	}
}

// unitsOfToday is what a refund takes off the day's count: nothing if the day has turned since.
func (g *Guard) unitsOfToday(gr *Grant) int64 {
	if dayOf(gr.at) != dayOf(g.now().UnixMicro()) {
		return 0
	}
	return gr.units
}

// sendReleases tells Redis of calls that ended, for as many users at a time as decisions share a run.
func (g *Guard) sendReleases(ctx context.Context, all map[string]ended) error {
	const most = maxCombined
	keys, ids := make([]string, 0, most), make([]any, 0, most)
	send := func() error {
		_, err := g.run(ctx, "release", keys, ids...)
		keys, ids = keys[:0], ids[:0]
		return err
	}
	for account, e := range all {
		if keys, ids = append(keys, g.userKey(account)), append(ids, e.ids); len(keys) == most {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return send()
}

// Close sends the releases that are still waiting to ride on a decision, so that other processes see the calls ended at
// once. The Guard can still be used. The error is Redis's; nothing is lost by ignoring it.
func (g *Guard) Close(ctx context.Context) error { return g.releases.flush(ctx, false) }
