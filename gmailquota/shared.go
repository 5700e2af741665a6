package gmailquota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file asks Redis: each function is one run of the script.

// errBreaker stands for the Redis error that opened the breaker.
var errBreaker = errors.New("not asked: Redis failed a moment ago")

// run runs one operation of the script within RedisTimeout. NOSCRIPT is cured by one EVAL; any other error means that
// there is no answer. A context that ends before Redis had its time says nothing about Redis.
func (g *Guard) run(ctx context.Context, op string, keys []string, args ...any) ([]int64, error) {
	probe, err := g.breaker.enter()
	if err != nil {
		return nil, err
	}
	all := make([]any, 0, 1+len(g.common)+len(args))
	all = append(append(append(all, op), g.common[:]...), args...)
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, g.cfg.RedisTimeout)
	defer cancel()
	g.counters.redisCalls.Add(1)
	answer, err := g.script.Run(limited, g.rdb, keys, all...).Int64Slice()
	if err != nil && over(ctx) != nil && time.Since(start) < g.cfg.RedisTimeout {
		g.breaker.abandon(probe)
		return nil, err
	}
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
	now := g.now().UnixMicro()
	before, told, owed := g.remembered(gr.account, now)
	u, p := told[0].told(now, g.plan.others), told[1].told(now, 0)
	released := g.releases.take(gr.account)
	answer, err := g.ask(ctx, g.userKey(gr.account), gr.charge.encode(owed[0].hold, owed[1].hold, u, p, released))
	if err == nil && (answer[0] < 0 || answer[0] >= int64(len(bucketNames))) {
		err = fmt.Errorf("the script answered %v", *answer)
	}
	if err != nil {
		g.releases.add(gr.account, released)
		return decision{}, err
	}
	d := decision{answer[0], answer[1], answer[2], answer[3], answer[4], ticket{answer[5], answer[6]}, answer[7]}
	now = g.now().UnixMicro()
	clock, born := answer[8], answer[9]
	gr.at = clock + d.wait
	for i, full := range [2]int64{d.user, d.project} {
		if d.code != admitted {
			full = 0
		}
		told[i] = known{born, max(told[i].full, now+full-clock)}
	}
	g.memory.learn(gr.account, now, before, told)
	if owed[0].any || owed[1].any {
		g.local.settled(gr.account, owed[0].any, owed[1].any)
	}
	return d, nil
}

// remembered is what this process knows of an account's and the project's bucket: from Redis, and all of it, with what
// the local buckets owe.
func (g *Guard) remembered(account string, now int64) (before, all [2]known, owed [2]debt) {
	before[0], before[1] = g.memory.of(account)
	owed[0], owed[1] = g.local.debt(account, now)
	for i, capUS := range [2]int64{g.plan.user.cap, g.plan.project.cap} {
		all[i] = before[i]
		all[i].full = reachable(all[i].full, &penalty{}, now, capUS, g.plan.longest) // this clock may have been set back
		if owed[i].any {
			all[i] = known{-1, max(all[i].full, now+owed[i].us+capUS)}
		}
	}
	return before, all, owed
}

// withoutRedis decides when Redis did not. For a call whose context has ended nobody decides.
func (g *Guard) withoutRedis(ctx context.Context, gr *Grant, cause error) (decision, error) {
	if err := over(ctx); err != nil {
		g.releases.add(gr.account, gr.charge.id) // Redis may have charged it
		return decision{}, err
	}
	g.counters.unavailable.Add(1)
	if !errors.Is(cause, errBreaker) {
		g.releases.add(gr.account, gr.charge.id)
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
		g.releases.add(gr.account, gr.charge.id)
	}
}

// unitsOfToday is what a refund takes off the day's count: nothing if the day has turned since.
func (g *Guard) unitsOfToday(gr *Grant) int64 {
	if dayOf(gr.at) != dayOf(g.now().UnixMicro()) {
		return 0
	}
	return gr.units
}

// sendReleases tells Redis of calls that ended, for up to 100 users at a time. What is lost lapses by itself.
func (g *Guard) sendReleases(ctx context.Context, ended map[string]string) error {
	const most = 100
	keys, ids := make([]string, 0, most), make([]any, 0, most)
	send := func() error {
		_, err := g.run(ctx, "release", keys, ids...)
		keys, ids = keys[:0], ids[:0]
		return err
	}
	for account, text := range ended {
		if keys, ids = append(keys, g.userKey(account)), append(ids, text); len(keys) == most {
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
func (g *Guard) Close(ctx context.Context) error { return g.releases.flush(ctx) }
