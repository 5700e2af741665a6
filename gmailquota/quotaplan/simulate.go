package quotaplan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Demands that a simulation may ask for, as the prices of its calls.
var (
	// Import is a thread fetched for each page listed: the dearest reading and a cheap one.
	Import = []int64{40, 10}
	// Mixed is Gmail's prices from the cheapest to the dearest.
	Mixed = []int64{1, 2, 5, 10, 15, 20, 25, 40, 50, 100}
)

// MaxLimit is the largest limit that Simulate takes, in units a minute: more than twice that of a whole Google project.
const MaxLimit = 3_000_000

// A simulation makes about so many calls, within these bounds of virtual time.
const (
	calls          = 60_000
	leastSimulated = 5 * time.Minute
	mostSimulated  = 24 * time.Hour
)

// seed makes a simulation's figures the same each time.
const seed = 20260501

// Outcome is how a limit and a burst fare.
type Outcome struct {
	// Use is the part of the limit that arrives while the demand never ends.
	Use float64
	// The parts of the calls that a provider refuses while the demand comes and goes: working for up to two minutes, then
	// resting for up to two minutes, so that every burst there is goes out.
	Fixed   float64
	Sliding float64
	Bucket  float64
}

// BucketOf is the capacity of the bucket with which Outcome.Bucket is metered: a tenth of the limit, and at least two of
// the dearest calls.
func BucketOf(limit int64) int64 { return max(limit/10, 200) }

// Simulate lets one user call through the guard's buckets on virtual time, always as soon as they allow it, and meters
// what arrives. Only cfg's settings of the user's bucket and the jitter count. It takes about a second at most.
// The error is a *gmailquota.ConfigError, or one for a limit above MaxLimit.
func Simulate(cfg gmailquota.Config, prices []int64) (Outcome, error) {
	full := cfg.UserBurst
	if cfg.UserCapacity > 0 {
		full = cfg.UserCapacity
	}
	return simulate(cfg, full, prices, func(cfg gmailquota.Config) (admitter, error) { return gmailquota.Rehearse(cfg) })
}

// SimulateWindow does the same with a Window of cfg's UserLimit and Jitter.
func SimulateWindow(cfg gmailquota.Config, prices []int64) (Outcome, error) {
	return simulate(cfg, cfg.UserLimit, prices, func(cfg gmailquota.Config) (admitter, error) {
		return NewWindow(cfg.UserLimit, cfg.Jitter), cfg.Validate()
	})
}

// admitter is a bucket or a window.
type admitter interface {
	Admit(now time.Duration, units int64) time.Duration
}

// simulate begins with a full bucket of so many units: they are no part of what flows.
func simulate(cfg gmailquota.Config, full int64, prices []int64, start func(gmailquota.Config) (admitter, error)) (Outcome, error) {
	if cfg.UserLimit > MaxLimit {
		return Outcome{}, fmt.Errorf("quotaplan: a limit of %d units a minute is more than the %d that can be simulated", cfg.UserLimit, MaxLimit)
	}
	cfg.ProjectLimit, cfg.ProjectBurst = 1_000_000_000, 0 // never what a call waits for
	cfg.KeyTTL = 24 * time.Hour
	var sum int64
	for _, p := range prices {
		sum += p
	}
	perMinute := float64(cfg.UserLimit) * float64(len(prices)) / float64(sum)
	span := min(max(time.Duration(calls/perMinute*float64(time.Minute)), leastSimulated), mostSimulated).Truncate(time.Minute)

	forSteady, err := start(cfg)
	if err != nil {
		return Outcome{}, err
	}
	steady := arrivals(forSteady, cfg.Jitter, prices, span, false)
	var units int64
	for _, a := range steady {
		units += a.units
	}
	forBursts, err := start(cfg)
	if err != nil {
		return Outcome{}, err
	}
	inBursts := arrivals(forBursts, cfg.Jitter, prices, span, true)
	return Outcome{
		// A window's last minute may have ended before the span: it is idle until the next begins.
		Use:     float64(units-full) / (float64(cfg.UserLimit) * steady[len(steady)-1].at.Minutes()),
		Fixed:   refused(inBursts, &FixedMinute{Limit: cfg.UserLimit}),
		Sliding: refused(inBursts, &SlidingMinute{Limit: cfg.UserLimit}),
		Bucket:  refused(inBursts, &TokenBucket{Limit: cfg.UserLimit, Capacity: BucketOf(cfg.UserLimit)}),
	}, nil
}

// Worst is the worse figure of each kind for the demands Import and Mixed.
func Worst(cfg gmailquota.Config) (Outcome, error) { return worst(cfg, Simulate) }

// WorstWindow is the same of SimulateWindow.
func WorstWindow(cfg gmailquota.Config) (Outcome, error) { return worst(cfg, SimulateWindow) }

func worst(cfg gmailquota.Config, simulate func(gmailquota.Config, []int64) (Outcome, error)) (Outcome, error) {
	a, err := simulate(cfg, Import)
	if err != nil {
		return Outcome{}, err
	}
	b, err := simulate(cfg, Mixed)
	return Outcome{
		Use: min(a.Use, b.Use), Fixed: max(a.Fixed, b.Fixed), Sliding: max(a.Sliding, b.Sliding), Bucket: max(a.Bucket, b.Bucket),
	}, err
}

// arrivals are the calls of span in the order in which they reach the provider.
func arrivals(bucket admitter, jitter time.Duration, prices []int64, span time.Duration, rests bool) []arrival {
	rnd := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d) + 1)) }
	const turn = 2 * time.Minute
	tired := upTo(turn)
	var out []arrival
	for now := time.Duration(0); ; {
		price := prices[rnd.IntN(len(prices))]
		now += bucket.Admit(now, price)
		if now >= span {
			break
		}
		out = append(out, arrival{now + upTo(jitter), price})
		if rests && now > tired {
			now += upTo(turn)
			tired = now + upTo(turn)
		}
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return out
}

// refused is the part of the calls that m refuses.
func refused(calls []arrival, m Meter) float64 {
	n := 0
	for _, c := range calls {
		if !m.Charge(c.at, c.units) {
			n++
		}
	}
	return float64(n) / float64(len(calls))
}
