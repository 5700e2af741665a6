package gmailquota_test

import (
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// away is an outage of d, in which Redis answers nothing.
func (l *losses) away(d time.Duration) {
	l.proxy.Fail("LOADING Redis is loading the dataset in memory")
	l.in(d, l.proxy.Pass)
}

// evict drops the keys of the user or of the project, as a Redis with too little memory does, one at a time.
func (l *losses) evict() {
	keys := l.mini.Keys()
	if len(keys) > 0 {
		l.mini.Del(keys[l.rnd.IntN(len(keys))])
	}
}

// failover brings the data back to what it was lag ago, as a replica does that is promoted without the last writes.
func (l *losses) failover(lag time.Duration) {
	then := map[string]string{}
	for _, k := range l.mini.Keys() {
		then[k], _ = l.mini.Get(k)
	}
	l.in(lag, func() {
		for _, k := range l.mini.Keys() {
			if text, ok := then[k]; ok {
				ttl := l.mini.TTL(k)
				_ = l.mini.Set(k, text)
				l.mini.SetTTL(k, ttl)
			} else {
				l.mini.Del(k)
			}
		}
	})
}

// Three workers, and three configured: whatever Redis does, Gmail sees no more than the limit in any minute, and most of
// it is used. Only a failover that loses writes gives more, once: a burst, and what was reserved in the lost writes.
func TestThreeWorkersKeepTheLimitInTrouble(t *testing.T) {
	t.Parallel()
	const burst, reserved = 100, 10 * 40 // the in-flight cap's calls, of threads.get
	for name, c := range map[string]struct {
		failOpen bool
		trouble  func(l *losses)
		extra    int64   // units above the limit
		use      float64 // of the limit, at least
	}{
		"away for two minutes": {true, func(l *losses) { l.in(40*time.Second, func() { l.away(2 * time.Minute) }) }, 0, 0.85},
		"away from the start":  {true, func(l *losses) { l.away(4 * time.Minute) }, 0, 0.85},
		"away, calls fail":     {false, func(l *losses) { l.every(20*time.Second, func() { l.away(5 * time.Second) }) }, 0, 0.60},
		"evicted":              {true, func(l *losses) { l.every(3*time.Second, l.evict) }, 0, 0.60},
		"failover":             {true, func(l *losses) { l.every(65*time.Second, func() { l.failover(time.Second) }) }, burst, 0.85},
		"failover, away": {true, func(l *losses) {
			l.every(20*time.Second, func() { l.failover(time.Second); l.in(time.Second, func() { l.away(2 * time.Second) }) })
		}, 0, 0.80},
		"failover, far behind": {true, func(l *losses) { l.every(65*time.Second, func() { l.failover(5 * time.Second) }) }, burst + reserved, 0.85},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosses(t, 1, 3, c.failOpen)
			l.meter = &quotatest.SlidingMinute{Limit: 6000 + c.extra}
			for i := range 9 {
				l.in(time.Duration(l.rnd.Int64N(int64(time.Second))), func() { l.ask(l.workers[i%3]) })
			}
			c.trouble(l)
			const minutes = 4
			l.run(minutes * time.Minute)
			use := float64(l.units) / (minutes * 6000)
			t.Logf("most in 60 s %d, use %.3f", l.meter.Most(), use)
			if l.refused > 0 || use < c.use {
				t.Errorf("%d calls above the limit + %d, use %.3f; want none and at least %.2f", l.refused, c.extra, use, c.use)
			}
		})
	}
}
