package gmailquota_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func ExampleExplain() {
	for _, burst := range []int64{100, 600} {
		p, err := gmailquota.Explain(6000, burst, 200*time.Millisecond)
		if err != nil {
			panic(err)
		}
		fmt.Printf("burst %d: %d units a minute flow, %.1f %% of the limit; at most %d in any 60 s; 10,000 threads in %v\n",
			burst, p.Refill, 100*p.Use, p.Most, p.Time(10_000, 40).Round(time.Minute))
	}
	_, err := gmailquota.Explain(6000, 6000, 0)
	fmt.Println(err)
	// Output:
	// burst 100: 5880 units a minute flow, 98.0 % of the limit; at most 5999 in any 60 s; 10,000 threads in 1h8m0s
	// burst 600: 5382 units a minute flow, 89.7 % of the limit; at most 5999 in any 60 s; 10,000 threads in 1h14m0s
	// gmailquota: UserBurst = 6000: allowed is 1 to less than the limit of 6000 units a minute for one of 1 workers
}

// Of any limit and burst the plan is within the limit and wastes less than a few units of it.
func TestAPlanIsTheLargestWithinTheLimit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		limit := 200 + rnd.Int64N(1_200_000)
		burst := 100 + rnd.Int64N(limit-110)
		jitter := time.Duration(rnd.Int64N(int64(2 * time.Second)))
		p, err := gmailquota.Explain(limit, burst, jitter)
		var wrong *gmailquota.ConfigError
		if errors.As(err, &wrong) && wrong.Field == "KeyTTL" {
			continue // takes more than a day to fill
		}
		if err != nil {
			t.Fatalf("%d, %d, %v: %v", limit, burst, jitter, err)
		}
		if p.Most > limit || p.Most < limit-3 {
			t.Fatalf("%+v: in 60 s arrive at most %d units; want just the limit", p, p.Most)
		}
		full := time.Duration(float64(burst) / float64(p.Refill) * float64(time.Minute))
		if d := p.FullIn - full; d < 0 || d > time.Microsecond {
			t.Fatalf("%+v: full in %v; want %v", p, p.FullIn, full)
		}
	}
}

// A configuration with the plan's KeyTTL is refused, and with a microsecond more it is taken.
func TestAPlanKnowsTheShortestKeyTTL(t *testing.T) {
	p, err := gmailquota.Explain(6000, 3000, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	c := gmailquota.DefaultConfig()
	c.UserBurst, c.KeyTTL = 3000, p.KeyTTL
	if c.Validate() == nil {
		t.Error("KeyTTL is not the bound")
	}
	c.KeyTTL += time.Microsecond
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// A rehearsal and the model of the Redis script, which a test holds equal to the script, admit at the same moments.
func TestARehearsalDecidesAsTheGuard(t *testing.T) {
	cfg := testConfig(func(c *gmailquota.Config) {
		c.InFlight = 1000
	})
	rehearsal, err := gmailquota.Rehearse(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := newMarket(1, cfg)
	m.model.Do(gmailquota.Step{Op: "acquire", Account: "other", ID: gmailquota.NewID(), Calls: 1, Units: 1})
	m.model.Now += 61_000_000 // a new user starts full
	start := m.model.Now
	for range 2000 {
		units := 1 + m.rnd.Int64N(100)
		id := gmailquota.NewID()
		want := m.model.Do(gmailquota.Step{
			Op: "acquire", Account: "user", ID: id, Calls: 1, Units: units, Horizon: m.model.HorizonUS(gmailquota.Realtime),
		})
		got := rehearsal.Admit(time.Duration(m.model.Now-start)*time.Microsecond, units)
		if want[0] != 0 || got.Microseconds() != want[1] {
			t.Fatalf("%v; the guard: code %d, wait %d µs", got, want[0], want[1])
		}
		m.model.Do(gmailquota.Step{Op: "release", Account: "user", Released: id})
		m.model.Now += m.rnd.Int64N(1_200_000) // the debt stays within the horizon of 30 s
	}
}
