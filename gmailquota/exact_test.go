package gmailquota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// The wait of a denial and the wait of a reservation are the smallest, whatever state the buckets are in: a microsecond
// earlier, or with a microsecond less to reserve ahead, the call is denied.
func TestEveryWaitIsExactToBothSides(t *testing.T) {
	var probed [6]int // by the decision's code
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		m := gmailquota.NewModel(testConfig(func(c *gmailquota.Config) {
			c.UserLimit = []int64{300, 6000, 6001, 15_000}[seed%4]
			c.ProjectLimit, c.ProjectBurst = c.UserLimit*2, 150
			c.InFlight = 4 + rnd.IntN(40)
		}), 1_800_000_000_000_000)
		for range 5000 {
			s := randomStep(rnd)
			before := m.Clone()
			d := m.Do(s)
			if s.Op == "acquire" {
				probed[d[0]]++
				if d[0] == 0 {
					probeReservation(t, before, s, d[1])
				} else {
					probeDenial(t, m, s, d)
				}
			}
			if rnd.IntN(3) == 0 {
				m.Now += rnd.Int64N(1_500_000)
			}
		}
	}
	for code, n := range probed {
		if n < 20 {
			t.Errorf("only %d decisions of code %d were looked at", n, code)
		}
	}
}

func randomStep(rnd *rand.Rand) gmailquota.Step {
	s := gmailquota.Step{Op: "acquire", Account: fmt.Sprint("user-", rnd.IntN(3)), ID: gmailquota.NewID(), Calls: 1 + rnd.Int64N(2)}
	s.Units = 1 + rnd.Int64N(100)
	s.Horizon = []int64{0, 400_000, 30_000_000, rnd.Int64N(2_000_000)}[rnd.IntN(4)]
	if rnd.IntN(100) == 0 {
		s.Op, s.Scope = "penalize", gmailquota.Scope(rnd.IntN(3))
		s.Stated = 1 + rnd.Int64N(3_000_000) // without a time the rate falls, and grows until the wait is over
	}
	return s
}

// probeReservation asks m once more for what it reserved wait µs ahead, a µs less far.
func probeReservation(t *testing.T, m *gmailquota.Model, s gmailquota.Step, wait int64) {
	t.Helper()
	if wait == 0 {
		return
	}
	if s.MaxWait = time.Duration(wait-1) * time.Microsecond; wait == 1 {
		s.MaxWait = -1
	}
	if got := m.Clone().Do(s); got[0] == 0 || got[1] < 1 {
		t.Fatalf("%+v was reserved %d µs ahead; with a µs less: %v; want it denied", s, wait, got)
	}
}

// probeDenial asks m once more a microsecond before the quoted wait is over, and then. What waits for calls to end has
// no exact wait.
func probeDenial(t *testing.T, m *gmailquota.Model, s gmailquota.Step, d gmailquota.Decision) {
	t.Helper()
	const inFlight = 3
	code, wait := d[0], d[1]
	if wait <= 0 || code == inFlight && wait > 250_000 {
		t.Fatalf("%+v: code %d, for %d µs", s, code, wait)
	}
	if code == inFlight {
		return
	}
	early := m.Clone()
	early.Now += wait - 1
	if got := early.Do(s); got[0] == 0 || got[0] != inFlight && got[1] != 1 {
		t.Fatalf("%+v was denied for %d µs; a µs earlier: %v; want it denied for 1 µs", s, wait, got)
	}
	due := m.Clone()
	due.Now += wait
	if got := due.Do(s); got[0] != 0 && got[0] != inFlight {
		t.Fatalf("%+v was denied for %d µs; then: %v; want it admitted", s, wait, got)
	}
}
