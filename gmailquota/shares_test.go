package gmailquota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Whatever the others ask for, each class gets its share, and together they use all there is.
func TestEachClassGetsItsShareWhateverTheOthersAskFor(t *testing.T) {
	cheap, mixed, dear := []int64{2}, []int64{1, 2, 10, 20, 40, 100}, []int64{40, 100}
	for name, prices := range map[string][3][]int64{ // backfill, realtime, maintenance
		"all mixed": {mixed, mixed, mixed}, "dear beside cheap": {dear, cheap, cheap}, "cheap beside dear": {cheap, dear, dear},
		"backfill and realtime": {dear, cheap, nil}, "backfill and maintenance": {mixed, nil, mixed}, "realtime and maintenance": {nil, mixed, dear},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(1, testConfig(func(c *gmailquota.Config) { c.InFlight = 1000 }))
			m.maxWait = 3 * time.Second
			for class, p := range prices {
				for range 80 { // each sleeps for what it reserved
					if p != nil {
						m.add(&caller{account: "user", class: gmailquota.Class(class), prices: p, pause: always})
					}
				}
			}
			const minutes = 3
			m.run(minutes * time.Minute)
			var total int64
			limit := minutes * m.cfg.UserLimit
			for class, units := range m.byClass {
				total += units
				if want := limit * int64(m.cfg.Shares[gmailquota.Class(class)]) / 100 * 95 / 100; prices[class] != nil && units < want {
					t.Errorf("%v: %d units; want %d", gmailquota.Class(class), units, want)
				}
			}
			if use := float64(total) / float64(limit); use < 0.96 || m.refused > 0 {
				t.Errorf("use %.3f, %d refused; got %v", use, m.refused, m.byClass)
			}
		})
	}
}

// The same holds among the users of a project that is full: each class gets its share of the project.
func TestEachClassGetsItsShareOfAFullProject(t *testing.T) {
	const limit, minutes = 30_000, 4
	m := newMarket(6, testConfig(func(c *gmailquota.Config) { c.InFlight, c.ProjectLimit = 100, limit }))
	m.maxWait = 3 * time.Second
	for i := range 60 { // 20 users want 120,000 units a minute of 30,000
		class := gmailquota.Class(i % 3)
		for range 4 {
			m.add(&caller{account: fmt.Sprint("user-", i/3), class: class, prices: [][]int64{{40, 10}, {2, 20}, {1, 100}}[class], pause: always})
		}
	}
	m.run(minutes * time.Minute)
	var total int64
	for class, units := range m.byClass {
		total += units
		if want := int64(minutes * limit * m.cfg.Shares[gmailquota.Class(class)] / 100 * 95 / 100); units < want {
			t.Errorf("%v: %d units; want %d", gmailquota.Class(class), units, want)
		}
	}
	if use := float64(total) / (minutes * limit); use < 0.96 {
		t.Errorf("use %.3f of the project's limit; got %v", use, m.byClass)
	}
}

// A dear call gets through beside a flood of cheap ones.
func TestAWatchGetsThroughBesideAFloodOfCheapCalls(t *testing.T) {
	m := newMarket(2, testConfig(func(c *gmailquota.Config) { c.InFlight = 200 }))
	m.maxWait = 3 * time.Second
	for range 60 {
		m.add(&caller{account: "user", class: gmailquota.Realtime, prices: []int64{2}, pause: always})
	}
	m.add(&caller{account: "user", class: gmailquota.Maintenance, prices: []int64{100}, pause: always})
	m.run(4 * time.Minute)
	if n := m.byClass[gmailquota.Maintenance] / 100; n < 22 {
		t.Errorf("%d watches in 4 minutes beside the flood; its share is 24", n)
	}
}

// While an import takes all, calls that come out of silence wait for one of its calls at most.
func TestARealtimeCallWaitsForOneCallOfAnImport(t *testing.T) {
	for _, step := range []time.Duration{0, 777 * time.Millisecond} { // ten in a row, or now and then
		m := newMarket(4, testConfig(func(c *gmailquota.Config) { c.InFlight = 200 }))
		m.maxWait = 3 * time.Second
		for range 10 {
			m.add(&caller{account: "user", class: gmailquota.Backfill, prices: []int64{40}, pause: always})
		}
		m.run(5 * time.Minute)
		began := m.model.Now
		own := (2*60_000_000 + 5879) / int64(5880)
		for i := range 10 {
			m.run(step)
			d := m.model.Do(gmailquota.Step{Op: "acquire", Account: "user", ID: gmailquota.NewID(), Calls: 1, Units: 2,
				Class: gmailquota.Realtime, Horizon: m.model.HorizonUS(gmailquota.Realtime)})
			if most := int64(i+1)*(400_000+own) - (m.model.Now - began) + 400_000; d[0] != 0 || step > 0 && d[1] > 400_000+2*own+408_164 || step == 0 && d[1] > most {
				t.Errorf("call %d after %v: code %d, wait %d µs", i, step, d[0], d[1])
			}
		}
	}
}

// The same in the project's bucket: imports of other users that fill it keep a realtime call waiting no longer than an
// import of its own user does.
func TestARealtimeCallWaitsForNoMoreInAFullProject(t *testing.T) {
	m := newMarket(7, testConfig(func(c *gmailquota.Config) { c.InFlight, c.ProjectLimit = 200, 12_000 }))
	m.maxWait = 3 * time.Second
	for i := range 40 {
		m.add(&caller{account: fmt.Sprint("user-", i%10), class: gmailquota.Backfill, prices: []int64{40}, pause: always})
	}
	m.run(3 * time.Minute)
	began := m.model.Now
	const own = 2*60_000_000/11_600 + 1 // µs of the project's refill that two units take, at least
	for i := range 10 {
		d := m.model.Do(gmailquota.Step{Op: "acquire", Account: fmt.Sprint("quiet-", i), ID: gmailquota.NewID(), Calls: 1, Units: 2,
			Class: gmailquota.Realtime, Horizon: m.model.HorizonUS(gmailquota.Realtime)})
		if most := 410_000 + 350_000 + int64(i+1)*own; d[0] != 0 || m.model.Now-began+d[1] > most {
			t.Errorf("call %d: code %d, admitted after %d µs; want at most %d", i, d[0], m.model.Now-began+d[1], most)
		}
	}
}

// Users that share a project at its limit get about as much, whether they have one caller or ten; the whole is used.
func TestUsersShareAFullProjectAlike(t *testing.T) {
	const minutes = 5
	users := 1000
	if underRace { // it is the same virtual time, many times slower
		users = 200
	}
	limit := int64(users) * 1200 // as 1,000 users have of Gmail's
	m := newMarket(5, testConfig(func(c *gmailquota.Config) { c.ProjectLimit = limit; c.InFlight = 40 }))
	m.maxWait = 3 * time.Second
	for i := range users {
		for range 1 + i%10 {
			m.add(&caller{account: fmt.Sprint("user-", i), class: 0, prices: []int64{2, 10, 20, 40}, pause: func(r *rand.Rand) time.Duration {
				return time.Duration(r.Int64N(int64(time.Second)))
			}})
		}
	}
	m.run(3 * time.Minute)
	clear(m.units)
	m.run(minutes * time.Minute)
	total, poorest := int64(0), int64(1<<60)
	for i := range users {
		units := m.units[fmt.Sprint("user-", i)]
		total += units
		poorest = min(poorest, units)
	}
	use, poor := float64(total)/float64(minutes*limit), float64(poorest)/(float64(total)/float64(users))
	t.Logf("use %.3f, the poorest has %.2f of the mean, asked %d", use, poor, m.asked)
	if use < 0.97 || poor < 0.8 || m.refused > 0 {
		t.Errorf("use %.3f, the poorest has %.2f of the mean, %d refused; want 0.97, 0.8 and none", use, poor, m.refused)
	}
}
