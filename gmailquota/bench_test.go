package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// What is measured is ratios: the contenders take turns in slices of some milliseconds on one redis-server, so that what
// else the machine does hits all of them alike. With GMAILQUOTA_BARS=1 a missed bar fails the benchmark.

// contender is a way to decide.
type contender struct {
	decide func(ctx context.Context, user string)

	decisions int
	took      time.Duration
	waits     []time.Duration // one caller's, each
	redis     time.Duration   // processor time of Redis
	own       time.Duration   // of this process
}

const (
	turn = 25 * time.Millisecond // of a contender
	// warmUp is a turn that does not count: it makes the connections.
	warmUp = 100 * time.Millisecond
)

// run lets callers decide for d.
func (c *contender) run(d time.Duration, callers, users int) {
	ctx := context.Background()
	waits := make([][]time.Duration, callers)
	began := time.Now()
	end := began.Add(d)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for now := time.Now(); now.Before(end); {
				c.decide(ctx, "user-"+strconv.Itoa(rand.IntN(users)))
				after := time.Now()
				waits[i] = append(waits[i], after.Sub(now))
				now = after
			}
		})
	}
	wg.Wait()
	c.took += time.Since(began)
	for _, w := range waits {
		c.decisions += len(w)
		c.waits = append(c.waits, w...)
	}
}

func (c *contender) rate() float64 { return float64(c.decisions) / c.took.Seconds() }

// cpu is what a decision costs Redis, µs of its processor.
func (c *contender) cpu() float64 { return float64(c.redis.Microseconds()) / float64(c.decisions) }

// total is what it costs Redis and this process together.
func (c *contender) total() float64 {
	return float64((c.redis + c.own).Microseconds()) / float64(c.decisions)
}

// quantile is in µs. It sorts the waits.
func (c *contender) quantile(q float64) float64 {
	slices.Sort(c.waits)
	return float64(c.waits[int(q*float64(len(c.waits)-1))].Nanoseconds()) / 1000
}

// race lets contenders take turns for as long as the benchmark runs.
func race(b *testing.B, rdb redis.UniversalClient, callers, users int, contenders ...*contender) {
	b.Helper()
	for _, c := range contenders {
		c.run(warmUp, callers, users)
		*c = contender{decide: c.decide}
	}
	for b.Loop() {
		for _, c := range contenders {
			redisBefore, before := redisTime(b, rdb), ownTime(b)
			c.run(turn, callers, users)
			c.own += ownTime(b) - before
			c.redis += redisTime(b, rdb) - redisBefore
		}
	}
	b.ReportMetric(0, "ns/op") // a turn of all of them says nothing
}

var mainThread = regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([\d.]+)`)

// redisTime is the processor time that Redis has used for its clients.
func redisTime(b *testing.B, rdb redis.UniversalClient) time.Duration {
	b.Helper()
	info, err := rdb.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, m := range mainThread.FindAllStringSubmatch(info, -1) {
		d, err := time.ParseDuration(m[1] + "s")
		if err != nil {
			b.Fatal(err)
		}
		sum += d
	}
	if sum == 0 {
		b.Fatal("this Redis does not tell its main thread's processor time")
	}
	return sum
}

// ownTime is the processor time that this process has used.
func ownTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bar is a figure that the guard must keep.
func bar(b *testing.B, kept bool, format string, args ...any) {
	b.Helper()
	switch {
	case kept:
	case os.Getenv("GMAILQUOTA_BARS") != "":
		b.Errorf(format, args...)
	default:
		b.Logf(format, args...)
	}
}

// wide has a project that does not deny: redis_rate's single limit is the user's.
func wide(c *gmailquota.Config) { c.ProjectLimit = 1_000_000_000 }

// guarded is the guard with Gmail's limits. What is admitted ends at once.
func guarded(b *testing.B, g *gmailquota.Guard, r gmailquota.Request) *contender {
	return &contender{decide: func(ctx context.Context, user string) {
		r := r
		r.Account = user
		gr, err := g.Acquire(ctx, r)
		if err == nil {
			gr.Release()
			return
		}
		if denied := (*gmailquota.DeniedError)(nil); !errors.As(err, &denied) {
			b.Error(err)
		}
	}}
}

// limited is redis_rate with as many limits as keys, each as wide as the guard's for a user.
func limited(b *testing.B, rdb redis.UniversalClient, units int, keys ...string) *contender {
	limiter := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: 5880, Burst: 100, Period: time.Minute}
	return &contender{decide: func(ctx context.Context, user string) {
		for _, k := range keys {
			if _, err := limiter.AllowN(ctx, k+user, limit, units); err != nil {
				b.Error(err)
			}
		}
	}}
}

func pinged(b *testing.B, rdb redis.UniversalClient) *contender {
	return &contender{decide: func(ctx context.Context, _ string) {
		if err := rdb.Ping(ctx).Err(); err != nil {
			b.Error(err)
		}
	}}
}

// BenchmarkDecisions compares the guard with PING, and with redis_rate for one limit and for two, as many as the guard
// decides at once. One hot user is mostly denied, 10,000 are mostly admitted.
func BenchmarkDecisions(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		for _, users := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("callers=%d/users=%d", callers, users), func(b *testing.B) {
				addr := quotatest.StartRedis(b)
				rdb := quotatest.Client(b, addr)
				g := realGuard(b, addr, wide)
				r := gmailquota.Request{Method: "history.list", Class: gmailquota.Realtime}
				if users == 1 {
					r.MaxWait = -1 // what it could reserve is soon reserved
				}
				guard := guarded(b, g, r)
				once, twice := limited(b, rdb, 2, "a"), limited(b, rdb, 2, "a", "b")
				ping := pinged(b, rdb)
				race(b, rdb, callers, users, guard, once, twice, ping)
				b.ReportMetric(guard.rate(), "decisions/s")
				b.ReportMetric(guard.rate()/once.rate(), "x-once")
				b.ReportMetric(guard.rate()/twice.rate(), "x-twice")
				b.ReportMetric(guard.rate()/ping.rate(), "x-ping")
				b.ReportMetric(guard.quantile(.5), "p50-µs")
				b.ReportMetric(guard.quantile(.5)/once.quantile(.5), "p50-x-once")
				b.ReportMetric(guard.quantile(.99), "p99-µs")
				b.ReportMetric(guard.quantile(.99)/once.quantile(.99), "p99-x-once")
				b.ReportMetric(guard.cpu(), "redis-µs")
				b.ReportMetric(guard.cpu()/once.cpu(), "redis-x-once")
				b.ReportMetric(guard.total()/once.total(), "cpu-x-once")
				if callers > 1 {
					bar(b, guard.rate() >= 2*once.rate(), "%.2f x redis_rate once; the bar is 2", guard.rate()/once.rate())
					bar(b, guard.quantile(.99) <= once.quantile(.99), "p99 %.2f x redis_rate's once; the bar is 1", guard.quantile(.99)/once.quantile(.99))
				}
				bar(b, guard.cpu() <= 2.5*once.cpu(), "Redis works %.2f x as long as for redis_rate once; the bar is 2.5", guard.cpu()/once.cpu())
			})
		}
	}
}

// BenchmarkRedisTime is what one decision costs in Redis, without others in the same script: an admission, a denial to a
// call that does not come back, and one that gives it a place.
func BenchmarkRedisTime(b *testing.B) {
	place := gmailquota.Request{Method: "threads.get", Class: gmailquota.Realtime, MaxWait: time.Nanosecond}
	denied := place
	denied.MaxWait = -1
	admitted := gmailquota.Request{Method: "history.list", Class: gmailquota.Realtime}
	for _, c := range []struct {
		name    string
		request gmailquota.Request
		users   int
		most    float64 // x redis_rate
	}{{"admission", admitted, 10_000, 2.5}, {"denial", denied, 1, 2.5}, {"place", place, 1, 2.5}} {
		b.Run(c.name, func(b *testing.B) {
			addr := quotatest.StartRedis(b)
			rdb := quotatest.Client(b, addr)
			g := realGuard(b, addr, wide)
			guard, once := guarded(b, g, c.request), limited(b, rdb, 2, "a")
			race(b, rdb, 1, c.users, guard, once)
			stats := g.Stats()
			b.ReportMetric(100*float64(stats.Admitted)/float64(stats.Admitted+stats.Denied), "%-admitted")
			b.ReportMetric(guard.cpu(), "redis-µs")
			b.ReportMetric(once.cpu(), "once-µs")
			b.ReportMetric(guard.cpu()/once.cpu(), "redis-x-once")
			bar(b, guard.cpu() <= c.most*once.cpu(), "Redis works %.2f x as long as for redis_rate once; the bar is %v", guard.cpu()/once.cpu(), c.most)
		})
	}
}

// BenchmarkMemory is what Redis holds for a user, in bytes: at rest, and for each call under way.
func BenchmarkMemory(b *testing.B) {
	const calls = 10
	addr := quotatest.StartRedis(b)
	rdb := quotatest.Client(b, addr)
	ctx := context.Background()
	var rest, busy int64
	for b.Loop() {
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			b.Fatal(err)
		}
		g := realGuard(b, addr, wide)
		key, _ := g.Keys("0123456789abcdef")
		use := func() int64 {
			gr, err := g.Acquire(ctx, gmailquota.Request{Account: "0123456789abcdef", Method: "history.list", Class: gmailquota.Realtime})
			if err != nil {
				b.Fatal(err)
			}
			gr.Release()
			return rdb.MemoryUsage(ctx, key).Val()
		}
		rest = use()
		for range calls {
			busy = use()
		}
	}
	b.ReportMetric(float64(rest-32), "bytes-at-rest")
	b.ReportMetric(float64(busy-rest)/calls, "bytes/call")
	bar(b, rest-32 <= 300, "%d bytes at rest; the bar is 300", rest-32)
	bar(b, busy <= 300+32*(calls+1), "%d bytes with %d calls; the bar is %d", busy, calls+1, 300+32*(calls+1))
}
