package gmailquota_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// What a call costs while Redis is away and the breaker is open: it is decided in the process. Every 2 s one call asks
// Redis, which of a hung one takes the whole RedisTimeout; p99 is what the others see, and at most 1 ms with
// GMAILQUOTA_BARS=1.
func BenchmarkOutage(b *testing.B) {
	for name, begin := range map[string]func(*quotatest.Proxy){
		"hung": (*quotatest.Proxy).Hang,
		"dead": func(p *quotatest.Proxy) { p.Retarget("127.0.0.1:1") },
	} {
		for mode, failOpen := range map[string]bool{"local": true, "denied": false} {
			b.Run(name+"/"+mode, func(b *testing.B) {
				proxy := quotatest.NewProxy(b, miniredis.RunT(b).Addr())
				cfg := testConfig(func(c *gmailquota.Config) { c.FailOpen, c.RedisTimeout = failOpen, 50*time.Millisecond })
				opts, err := gmailquota.RedisOptions("redis://"+proxy.Addr, cfg.RedisTimeout)
				if err != nil {
					b.Fatal(err)
				}
				rdb := redis.NewUniversalClient(opts)
				defer func() { _ = rdb.Close() }()
				g, err := gmailquota.New(rdb, cfg)
				if err != nil {
					b.Fatal(err)
				}
				begin(proxy)
				_, _ = g.Acquire(context.Background(), request("a")) // opens the breaker
				timeCalls(b, g)
			})
		}
	}
}

func timeCalls(b *testing.B, g *gmailquota.Guard) {
	b.Helper()
	took := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		began := time.Now()
		gr, err := g.Acquire(context.Background(), immediate("a"))
		took = append(took, time.Since(began))
		var denied *gmailquota.DeniedError
		var away *gmailquota.UnavailableError
		if err != nil && !errors.As(err, &denied) && !errors.As(err, &away) {
			b.Fatal(err)
		}
		if gr != nil {
			gr.Release()
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns-p50")
	b.ReportMetric(float64(p99.Nanoseconds()), "ns-p99")
	b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "ns-max")
	if p99 > time.Millisecond && os.Getenv("GMAILQUOTA_BARS") == "1" {
		b.Errorf("p99 is %v; want less than 1 ms", p99)
	}
}
