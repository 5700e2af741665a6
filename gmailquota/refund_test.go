package gmailquota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Reservations that are given up leave room only where calls that are made later can take it: those already reserved
// keep their times, and must not meet others there.
func TestRefundsNeverBreakTheLimit(t *testing.T) {
	for percent, least := range map[int]float64{10: 0.85, 30: 0.65, 70: 0.20} { // of the limit
		for _, class := range []gmailquota.Class{gmailquota.Realtime, gmailquota.Backfill} {
			t.Run(fmt.Sprint(class, " ", percent, " %"), func(t *testing.T) {
				t.Parallel()
				m := newMarket(uint64(percent), testConfig(func(c *gmailquota.Config) { c.InFlight = 40 }))
				m.gives = percent
				for range 30 {
					m.add(&caller{account: "user", class: class, prices: []int64{100, 40, 10}, pause: bursts})
				}
				m.run(20 * time.Minute)
				if use := float64(m.units["user"]) / (20 * 6000); m.refused > 0 || use < least {
					t.Errorf("%d refusals, use %.3f; want none, and %.2f", m.refused, use, least)
				}
			})
		}
	}
}

// Nothing is wasted where nobody reserved later.
func TestTheLastReservationIsRefundedWhole(t *testing.T) {
	m := newMarket(1, testConfig(func(c *gmailquota.Config) { c.InFlight = 40 }))
	step := func() gmailquota.Step {
		return gmailquota.Step{Op: "acquire", Account: "user", ID: gmailquota.NewID(), Calls: 1, Units: 100,
			Class: gmailquota.Realtime, Horizon: m.model.HorizonUS(gmailquota.Realtime)}
	}
	m.model.Do(step())
	given := step()
	d := m.model.Do(given)
	given.Op, given.After = "refund", d
	m.model.Do(given)
	if again := m.model.Do(step()); again[1] != d[1] {
		t.Errorf("reserved %d µs ahead; want the %d of the call that was given up", again[1], d[1])
	}
}

// A worker whose horizons are shorter than another's does not take what that one reserved for a clock that was set back.
func TestWorkersMayHaveOtherHorizons(t *testing.T) {
	m := newMarket(1, testConfig())
	call := func() gmailquota.Decision {
		return m.model.Do(gmailquota.Step{Op: "acquire", Account: "user", ID: gmailquota.NewID(), Calls: 1, Units: 100,
			Class: gmailquota.Realtime, Horizon: m.model.HorizonUS(gmailquota.Realtime)})
	}
	for range 10 {
		call()
	}
	m.model.Reconfigure(testConfig(func(c *gmailquota.Config) {
		c.Horizons = map[gmailquota.Class]time.Duration{gmailquota.Realtime: time.Second, gmailquota.Maintenance: time.Second}
	}))
	if d := call(); d[0] == 0 {
		t.Errorf("a call is reserved %d µs ahead; those before it are more than 10 s ahead", d[1])
	}
}

// When Redis' clock is set back the line is lost, and those who waited in it are newcomers; the rate is used as before.
func TestAClockThatIsSetBackLosesNoRate(t *testing.T) {
	for _, back := range []time.Duration{5 * time.Minute, time.Hour} {
		m := newMarket(1, testConfig(func(c *gmailquota.Config) { c.InFlight = 100 }))
		for range 30 {
			m.add(&caller{account: "user", class: gmailquota.Backfill, prices: []int64{40}, pause: always})
		}
		m.run(time.Minute)
		m.model.Back(m.model.Now - back.Microseconds())
		for i := range m.events { // the callers' own clocks were right
			m.events[i].at -= back.Microseconds()
		}
		m.run(time.Minute)
		clear(m.units)
		m.run(5 * time.Minute)
		if use := float64(m.units["user"]) / (5 * 6000); use < 0.95 {
			t.Errorf("set back by %v: use %.3f", back, use)
		}
	}
}
