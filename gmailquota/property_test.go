package gmailquota_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// arrived is a call at the provider.
type arrived struct{ at, units int64 }

// oracle keeps every arrival. It knows nothing of buckets or meters, only what a minute is.
type oracle map[string][]arrived

func (o oracle) note(who string, at, units int64) { o[who] = append(o[who], arrived{at, units}) }

// most is the largest sum of units that any 60 s had, each minute [t, t + 60 s) that begins with a call looked at.
func (o oracle) most(who string) int64 {
	calls := slices.SortedFunc(slices.Values(o[who]), func(a, b arrived) int { return cmp.Compare(a.at, b.at) })
	var sum, largest int64
	end := 0
	for _, first := range calls {
		for ; end < len(calls) && calls[end].at < first.at+time.Minute.Microseconds(); end++ {
			sum += calls[end].units
		}
		largest = max(largest, sum)
		sum -= first.units
	}
	return largest
}

// The oracle is right: it says what adding up every minute, call by call, says.
func TestTheWindowOracleAddsUpEveryMinute(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	for range 200 {
		o := oracle{}
		for range rnd.IntN(200) {
			o.note("a", rnd.Int64N(20)*20_000_000+rnd.Int64N(3), 1+rnd.Int64N(100)) // many just a minute apart
		}
		var want int64
		for _, first := range o["a"] {
			var sum int64
			for _, c := range o["a"] {
				if c.at >= first.at && c.at < first.at+60_000_000 {
					sum += c.units
				}
			}
			want = max(want, sum)
		}
		if got := o.most("a"); got != want {
			t.Fatalf("the fullest minute has %d units; want %d", got, want)
		}
	}
}

// demand is one random way of calling.
type demand struct {
	cfg     gmailquota.Config
	users   int
	callers int // of each user
	class   func(i int) gmailquota.Class
	prices  []int64
	pause   func(*rand.Rand) time.Duration
}

func randomDemand(rnd *rand.Rand) demand {
	d := demand{users: 1, callers: 1 + rnd.IntN(4)}
	d.class = func(i int) gmailquota.Class { return gmailquota.Class(i % 3) }
	d.cfg = testConfig(func(c *gmailquota.Config) {
		c.UserLimit = []int64{6000, 6000, 6000, 15_000}[rnd.IntN(4)]
		c.UserBurst = []int64{100, 100, 100, 100 + rnd.Int64N(200)}[rnd.IntN(4)]
		c.InFlight = 20
	})
	d.prices = [][]int64{{40, 10}, {1, 2, 5, 10, 15, 20, 25, 40, 50, 100}, {5 + rnd.Int64N(96), 5 + rnd.Int64N(96)}}[rnd.IntN(3)]
	d.pause = []func(*rand.Rand) time.Duration{bursts, sparse, always, always}[rnd.IntN(4)]
	if rnd.IntN(5) == 0 { // the project is what limits
		d.users = 4
		d.cfg.ProjectLimit = int64(d.users) * d.cfg.UserLimit / 3
		d.class = func(int) gmailquota.Class { return gmailquota.Backfill } // see Config.ProjectLimit
	}
	return d
}

// greedy tells whether the callers of a user always want more than its limit: half as much again, at least. A call is
// away for half the jitter on average.
func (d demand) greedy() bool {
	var sum int64
	for _, p := range d.prices {
		sum += p
	}
	perSecond := float64(d.callers) / (d.cfg.Jitter.Seconds() / 2) * float64(sum) / float64(len(d.prices))
	return d.users == 1 && d.pause(rand.New(rand.NewPCG(0, 0))) == 0 && perSecond > 1.5*float64(d.cfg.UserLimit)/60
}

func (d demand) String() string {
	return fmt.Sprintf("%d users with %d callers, limit %d, burst %d, project %d, prices %v, greedy %v",
		d.users, d.callers, d.cfg.UserLimit, d.cfg.UserBurst, d.cfg.ProjectLimit, d.prices, d.greedy())
}

// In 10,000 minutes of random demand no model of a provider refuses a call, no 60 s have more than the limit, and a
// demand above the limit is met with what the burst leaves of it.
func TestNoMinuteIsOverTheLimitAndNoneIsIdle(t *testing.T) {
	minutes := 10_000
	if testing.Short() || underRace {
		minutes = 500
	}
	const run = 100
	for seed := range uint64(minutes / run) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			d := randomDemand(rand.New(rand.NewPCG(seed, 11)))
			m := newMarket(seed, d.cfg)
			seen := oracle{}
			m.arrived = func(account string, units int64) {
				seen.note(account, m.model.Now, units)
				seen.note("", m.model.Now, units)
			}
			m.project = append(m.project, &quotatest.FixedMinute{Limit: d.cfg.ProjectLimit, Phase: time.Duration(m.rnd.Int64N(int64(time.Minute)))})
			for i := range d.users * d.callers {
				m.add(&caller{account: fmt.Sprint("user-", i%d.users), class: d.class(i / d.users), prices: d.prices, pause: d.pause})
			}
			m.run(run * time.Minute)
			d.judge(t, m, seen, run)
		})
	}
}

func (d demand) judge(t *testing.T, m *market, seen oracle, minutes int64) {
	t.Helper()
	if m.refused > 0 {
		t.Errorf("%v: %d refusals", d, m.refused)
	}
	if most := seen.most(""); most > d.cfg.ProjectLimit {
		t.Errorf("%v: a minute of the project had %d units", d, most)
	}
	plan, err := gmailquota.Explain(d.cfg.UserLimit, d.cfg.UserBurst, d.cfg.Jitter)
	if err != nil {
		t.Fatal(err)
	}
	for account, units := range m.units {
		if most := seen.most(account); most > d.cfg.UserLimit {
			t.Errorf("%v: a minute of %s had %d units", d, account, most)
		}
		use := float64(units) / float64(minutes*d.cfg.UserLimit)
		if d.greedy() && use < plan.Use-0.002 {
			t.Errorf("%v: %s used %.4f of the limit; want %.4f", d, account, use, plan.Use)
		}
		if d.greedy() && d.cfg.UserBurst == 100 && use < 0.97 {
			t.Errorf("%v: %s used %.4f of the limit with the default burst; want at least 0.97", d, account, use)
		}
	}
}
