package gmailquota_test

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// losses is one busy user of a few workers whose Redis loses its data or goes away, on virtual time. The workers' clocks
// differ from each other's and from Redis'.
type losses struct {
	t       *testing.T
	rnd     *rand.Rand
	mini    *miniredis.Miniredis
	proxy   *quotatest.Proxy
	redis   *quotatest.Clock
	clocks  []*manualClock
	workers []*gmailquota.Guard
	meter   *quotatest.SlidingMinute
	events  events
	now     int64 // µs
	units   int64
	refused int
}

func newLosses(t *testing.T, seed uint64, workers int, failOpen bool) *losses {
	mini := miniredis.RunT(t)
	l := &losses{
		t: t, rnd: rand.New(rand.NewPCG(seed, 3)), mini: mini, proxy: quotatest.NewProxy(t, mini.Addr()),
		redis: quotatest.NewClock(mini, noon), meter: &quotatest.SlidingMinute{Limit: 6000},
	}
	for i := range workers {
		cfg := testConfig(func(c *gmailquota.Config) { c.FailOpen, c.Workers = failOpen, workers })
		opts, err := gmailquota.RedisOptions("redis://"+l.proxy.Addr, cfg.RedisTimeout)
		if err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewUniversalClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		clock := &manualClock{now: noon.Add(time.Duration(i) * time.Hour)}
		g, err := gmailquota.New(rdb, cfg, gmailquota.WithClock(clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		l.clocks, l.workers = append(l.clocks, clock), append(l.workers, g)
	}
	return l
}

func (l *losses) in(d time.Duration, then func()) {
	heap.Push(&l.events, event{l.now + d.Microseconds(), then})
}

// ask is one caller: it asks, sleeps, calls, and asks again. It reserves up to 3 s ahead.
func (l *losses) ask(g *gmailquota.Guard) {
	again := func() { l.ask(g) }
	r := gmailquota.Request{Account: "a", Method: "threads.get", Class: gmailquota.Realtime, MaxWait: 3 * time.Second}
	gr, err := g.Acquire(context.Background(), r)
	var denied *gmailquota.DeniedError
	var away *gmailquota.UnavailableError
	switch {
	case errors.As(err, &denied):
		l.in(denied.Wait+time.Duration(l.rnd.Int64N(int64(50*time.Millisecond))), again)
	case errors.As(err, &away):
		l.in(away.Wait+time.Duration(l.rnd.Int64N(int64(50*time.Millisecond))), again)
	case err != nil:
		l.t.Fatal(err)
	default:
		l.in(gr.Wait()+time.Duration(l.rnd.Int64N(int64(200*time.Millisecond))), func() {
			if l.units += gr.Units(); !l.meter.Charge(time.Duration(l.now)*time.Microsecond, gr.Units()) {
				l.refused++
			}
			gr.Release()
			l.ask(g)
		})
	}
}

func (l *losses) run(d time.Duration) {
	for end := l.now + d.Microseconds(); len(l.events) > 0 && l.events[0].at <= end; {
		e := heap.Pop(&l.events).(event)
		if step := time.Duration(e.at-l.now) * time.Microsecond; step > 0 {
			l.now = e.at
			l.redis.Advance(step)
			for _, c := range l.clocks {
				c.Advance(step)
			}
		}
		e.then()
	}
}

// every makes trouble each pause to 1.5 pauses.
func (l *losses) every(pause time.Duration, trouble func()) {
	l.in(pause+time.Duration(l.rnd.Int64N(int64(pause/2))), func() {
		trouble()
		l.every(pause, trouble)
	})
}

func (l *losses) flush() {
	for _, k := range l.mini.Keys() { // FLUSHALL without its effect on scripts
		l.mini.Del(k)
	}
}

// outage is 50 ms to 3 s without an answer of Redis.
func (l *losses) outage() {
	l.proxy.Fail("LOADING Redis is loading the dataset in memory")
	l.in(50*time.Millisecond+time.Duration(l.rnd.Int64N(int64(3*time.Second))), l.proxy.Pass)
}

// What was reserved before a loss of Redis' data or a change to or from the local buckets still goes out after it, and
// counts: the limit holds in every minute, and most of it is used.
func TestTheLimitOutlivesRedisState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workers  int
		failOpen bool
		trouble  func(l *losses)
		use      float64 // of the limit, at least
	}{
		"one worker, flushed":             {1, true, func(l *losses) { l.every(2500*time.Millisecond, l.flush) }, 0.96},
		"one worker, away":                {1, true, func(l *losses) { l.every(5*time.Second, l.outage) }, 0.85},
		"two, nothing happens":            {2, true, func(*losses) {}, 0.96},
		"two, flushed":                    {2, true, func(l *losses) { l.every(2500*time.Millisecond, l.flush) }, 0.60},
		"two, flushed now and then":       {2, true, func(l *losses) { l.every(25*time.Second, l.flush) }, 0.92},
		"two, away, local buckets":        {2, true, func(l *losses) { l.every(5*time.Second, l.outage) }, 0.70},
		"two, away, calls fail":           {2, false, func(l *losses) { l.every(5*time.Second, l.outage) }, 0.90},
		"two, away now and then":          {2, true, func(l *losses) { l.every(40*time.Second, l.outage) }, 0.92},
		"two, restarted":                  {2, true, func(l *losses) { l.every(6*time.Second, func() { l.flush(); l.outage() }) }, 0.70},
		"two, restarted, calls fail":      {2, false, func(l *losses) { l.every(6*time.Second, func() { l.flush(); l.outage() }) }, 0.70},
		"four, restarted now and then":    {4, true, func(l *losses) { l.every(25*time.Second, func() { l.flush(); l.outage() }) }, 0.80},
		"two, flushed, and away at times": {2, true, func(l *losses) { l.every(3*time.Second, l.flush); l.every(11*time.Second, l.outage) }, 0.60},
	} {
		t.Run(name, func(t *testing.T) {
			seeds, minutes := uint64(2), 4
			if underRace { // it is the same virtual time, ten times slower
				seeds, minutes = 1, 2
			}
			for seed := range seeds {
				l := newLosses(t, seed, c.workers, c.failOpen)
				for i := range 8 {
					l.in(time.Duration(l.rnd.Int64N(int64(time.Second))), func() { l.ask(l.workers[i%c.workers]) })
				}
				c.trouble(l)
				l.run(time.Duration(minutes) * time.Minute)
				use := float64(l.units) / float64(minutes*6000)
				t.Logf("seed %d: most in 60 s %d, use %.3f", seed, l.meter.Most(), use)
				if l.refused > 0 || use < c.use {
					t.Errorf("seed %d: %d calls above the limit, use %.3f; want none and at least %.2f", seed, l.refused, use, c.use)
				}
			}
		})
	}
}
