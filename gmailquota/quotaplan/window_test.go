package quotaplan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotaplan"
)

// A window gives the whole limit at once after a rest and uses at least 98 % of it without end. Providers that count
// minutes refuse nothing, one that enforces less than a minute does: it is not for every Gmail there may be.
func TestAWindowHasTheWholeBurstAndUsesTheLimit(t *testing.T) {
	for _, limit := range []int64{6000, 15_000, 300_000} {
		cfg := gmailquota.DefaultConfig()
		cfg.UserLimit = limit
		o, err := quotaplan.WorstWindow(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if o.Fixed+o.Sliding > 0 || o.Use < 0.98 || o.Use > 1 || o.Bucket < 0.05 {
			t.Errorf("limit %d: %+v; want a use of at least 0.98, and that only the provider's bucket refuses", limit, o)
		}
		w := quotaplan.NewWindow(limit, cfg.Jitter)
		for range limit / 40 {
			if wait := w.Admit(time.Hour, 40); wait != 0 {
				t.Fatalf("limit %d: after a rest a call of the first minute waits for %v", limit, wait)
			}
		}
	}
	cfg := gmailquota.DefaultConfig()
	cfg.UserLimit = quotaplan.MaxLimit + 1
	if _, err := quotaplan.WorstWindow(cfg); err == nil {
		t.Error("a limit above MaxLimit was simulated")
	}
	cfg.UserLimit = 90
	var wrong *gmailquota.ConfigError
	if _, err := quotaplan.WorstWindow(cfg); !errors.As(err, &wrong) {
		t.Errorf("a limit below the dearest price: %v; want a ConfigError", err)
	}
}

// Whatever is asked for, and however a minute is cut, none has more than the limit; and a call waits for no more than the
// charges that must be gone.
func TestAWindowKeepsEveryMinuteAndNoCallWaitsInVain(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			limit, jitter := 100+rnd.Int64N(3000), time.Duration(rnd.Int64N(int64(time.Second)))
			w := quotaplan.NewWindow(limit, jitter)
			meter := quotaplan.SlidingMinute{Limit: limit}
			type call struct {
				at    time.Duration
				units int64
			}
			var calls []call
			// counted is the units of the calls that may arrive within a minute of one at t; slack is how much longer they count.
			counted := func(t, slack time.Duration) (sum int64) {
				for _, c := range calls {
					if c.at+time.Minute+jitter+slack > t {
						sum += c.units
					}
				}
				return sum
			}
			for now := time.Duration(0); now < 20*time.Minute; {
				units := 1 + rnd.Int64N(100)
				wait := w.Admit(now, units)
				now += wait
				if sum := counted(now, 0) + units; sum > limit {
					t.Fatalf("at %v: %d units of %d in the minute of a call", now, sum, limit)
				}
				// Half a second is what the slots cost.
				if early := now - time.Microsecond; wait > 0 && counted(early, 500*time.Millisecond)+units <= limit {
					t.Fatalf("at %v: %d units had room before the wait of %v was over", now, units, wait)
				}
				calls = append(calls, call{now, units})
				if !meter.Charge(now, units) {
					t.Fatalf("at %v: refused", now)
				}
				if rnd.IntN(50) == 0 {
					now += time.Duration(rnd.Int64N(int64(90 * time.Second)))
				}
			}
		})
	}
}
