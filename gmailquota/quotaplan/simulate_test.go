package quotaplan_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotaplan"
)

// Whatever is asked for: within the limit nothing is refused by minutes, and what the arithmetic says is used.
func TestTheSimulationAgreesWithTheArithmetic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 4))
	for range 12 {
		cfg := gmailquota.DefaultConfig()
		cfg.UserLimit = 200 + rnd.Int64N(30_000)
		cfg.UserBurst = 100 + rnd.Int64N(cfg.UserLimit*3/4-100)
		p, err := gmailquota.Explain(cfg.UserLimit, cfg.UserBurst, cfg.Jitter)
		if err != nil {
			continue // the burst leaves nothing
		}
		o, err := quotaplan.Worst(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if o.Fixed+o.Sliding > 0 || o.Use < p.Use-0.005 || o.Use > p.Use+0.005 {
			t.Errorf("%+v fares so: %+v", p, o)
		}
		if again, _ := quotaplan.Worst(cfg); again != o {
			t.Errorf("the same again: %+v, then %+v", o, again)
		}
	}
}

func TestWhatCannotBeSimulated(t *testing.T) {
	cfg := gmailquota.DefaultConfig()
	cfg.UserBurst = 40
	var wrong *gmailquota.ConfigError
	if _, err := quotaplan.Simulate(cfg, quotaplan.Mixed); !errors.As(err, &wrong) || wrong.Field != "UserBurst" {
		t.Errorf("a burst below the dearest price: %v; want a ConfigError that names it", err)
	}
	cfg = gmailquota.DefaultConfig()
	cfg.UserLimit = quotaplan.MaxLimit + 1
	if _, err := quotaplan.Simulate(cfg, quotaplan.Mixed); err == nil {
		t.Error("a limit above MaxLimit was simulated")
	}
}

// A provider's bucket of the plan's smallest size refuses nothing, and one of nine tenths does.
func TestThePlanKnowsTheSmallestBucketThatRefusesNothing(t *testing.T) {
	cfg := gmailquota.DefaultConfig()
	for _, burst := range []int64{100, 600} {
		cfg.UserBurst = burst
		p, err := gmailquota.Explain(cfg.UserLimit, burst, cfg.Jitter)
		if err != nil {
			t.Fatal(err)
		}
		for _, bucket := range []struct {
			size    int64
			refuses bool
		}{{p.SmallestBucket, false}, {p.SmallestBucket * 9 / 10, true}} {
			refused := 0
			m := quotaplan.TokenBucket{Limit: cfg.UserLimit, Capacity: bucket.size}
			for _, at := range cheapCalls(t, cfg) {
				if !m.Charge(at, 1) {
					refused++
				}
			}
			if (refused > 0) != bucket.refuses {
				t.Errorf("burst %d: a bucket of %d refused %d calls", burst, bucket.size, refused)
			}
		}
	}
}

// cheapCalls are the arrivals of an hour of calls for one unit, as bad as can be: after each pause they begin just before
// a provider's second does, and what is admitted before it arrives in it.
func cheapCalls(t *testing.T, cfg gmailquota.Config) []time.Duration {
	t.Helper()
	bucket, err := gmailquota.Rehearse(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(2, 2))
	var out []time.Duration
	for now, begun := time.Duration(0), time.Duration(0); now < time.Hour; {
		now += bucket.Admit(now, 1)
		at := now
		if now < begun+cfg.Jitter {
			at += cfg.Jitter
		}
		out = append(out, at)
		if rnd.IntN(500) == 0 {
			begun = (now + time.Duration(rnd.Int64N(int64(20*time.Second)))).Truncate(time.Second) + 2*time.Second - cfg.Jitter
			now = begun
		}
	}
	slices.SortFunc(out, cmp.Compare[time.Duration])
	return out
}
