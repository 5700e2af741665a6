package gmailquota_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// market is a provider with its meters, the guard's core before it, and callers, on virtual time.
type market struct {
	rnd     *rand.Rand
	model   *gmailquota.Model
	cfg     gmailquota.Config
	users   map[string][]quotatest.Meter
	project []quotatest.Meter
	ended   map[string]string // account → ids of calls to release
	events  events
	start   int64
	units   map[string]int64                  // arrived
	metered func(units int64) int64           // the provider's price of a call that the guard charged these units
	arrived func(account string, units int64) // told of every call, if set
	refused int
	asked   int
	tells   bool // the guard is told what was refused
	gives   int  // percent of the reservations that are given up before their time
	maxWait time.Duration
	trace   func(*caller, gmailquota.Step, gmailquota.Decision)
	byClass [3]int64 // units
}

// caller is one goroutine of some worker: it asks, sleeps, calls, pauses, and asks again.
type caller struct {
	account string
	class   gmailquota.Class
	prices  []int64
	pause   func(*rand.Rand) time.Duration
	price   int64 // of the call that it wants
	ticket  [2]int64
}

type event struct {
	at   int64
	then func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newMarket(seed uint64, cfg gmailquota.Config) *market {
	start := int64(1_800_000_000_000_000)
	return &market{
		rnd: rand.New(rand.NewPCG(seed, 7)), model: gmailquota.NewModel(cfg, start), cfg: cfg, start: start,
		users: map[string][]quotatest.Meter{}, project: quotatest.Meters(cfg.ProjectLimit), ended: map[string]string{},
		units: map[string]int64{}, metered: func(units int64) int64 { return units },
	}
}

func (m *market) at(us int64, then func()) { heap.Push(&m.events, event{us, then}) }

func (m *market) add(c *caller) {
	if m.users[c.account] == nil {
		m.users[c.account] = quotatest.Meters(m.cfg.UserLimit)
	}
	m.at(m.model.Now+c.pause(m.rnd).Microseconds(), func() { m.ask(c) })
}

func (m *market) ask(c *caller) {
	if c.price == 0 {
		c.price = c.prices[m.rnd.IntN(len(c.prices))]
	}
	id := gmailquota.NewID()
	m.asked++
	step := gmailquota.Step{
		Op: "acquire", Account: c.account, ID: id, Calls: 1, Units: c.price, Class: c.class, Horizon: m.model.HorizonUS(c.class),
		MaxWait: m.maxWait, Patience: 1 << 50, From: c.ticket[0], To: c.ticket[1],
		Released: m.ended[c.account],
	}
	d := m.model.Do(step)
	if m.trace != nil {
		m.trace(c, step, d)
	}
	delete(m.ended, c.account)
	c.ticket = [2]int64{d[5], d[6]}
	if d[0] != 0 {
		m.at(m.model.Now+d[1], func() { m.ask(c) })
		return
	}
	price := c.price
	c.price = 0
	admitted := m.model.Now + d[1]
	if d[1] > 0 && m.rnd.IntN(100) < m.gives {
		m.at(m.model.Now+m.rnd.Int64N(d[1]), func() {
			step.Op, step.After = "refund", d
			m.model.Do(step)
			m.at(m.model.Now+c.pause(m.rnd).Microseconds(), func() { m.ask(c) })
		})
		return
	}
	arrival := admitted + m.rnd.Int64N(m.cfg.Jitter.Microseconds()+1)
	m.at(arrival, func() {
		m.byClass[c.class] += price
		m.arrive(c.account, m.metered(price), admitted)
		m.ended[c.account] += id
		m.at(m.model.Now+c.pause(m.rnd).Microseconds(), func() { m.ask(c) })
	})
}

func (m *market) arrive(account string, units, admitted int64) {
	since := time.Duration(m.model.Now-m.start) * time.Microsecond
	before := m.refused
	if m.arrived != nil {
		m.arrived(account, units)
	}
	for _, meter := range m.users[account] {
		if !meter.Charge(since, units) {
			m.refused++
		}
	}
	if m.refused > before && m.tells {
		m.model.Do(gmailquota.Step{Op: "penalize", Account: account, Admitted: admitted})
		return
	}
	m.units[account] += units
	for _, meter := range m.project {
		if !meter.Charge(since, units) {
			m.refused++
		}
	}
}

func (m *market) run(d time.Duration) {
	end := m.model.Now + d.Microseconds()
	for len(m.events) > 0 && m.events[0].at <= end {
		e := heap.Pop(&m.events).(event)
		m.model.Now = max(m.model.Now, e.at)
		e.then()
	}
	m.model.Now = end
}

func always(*rand.Rand) time.Duration { return 0 }

// bursts pauses for nothing, or now and then for up to 90 s, so that buckets fill.
func bursts(r *rand.Rand) time.Duration {
	if r.IntN(100) == 0 {
		return time.Duration(r.Int64N(int64(90 * time.Second)))
	}
	return time.Duration(r.Int64N(int64(20 * time.Millisecond)))
}

func sparse(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(4 * time.Second))) }

// No provider, however it cuts its minutes, refuses a call, whatever the demand and with up to 200 ms between admission
// and arrival.
// AlaskanTuna/Rokabot#149, go-redis/redis_rate#24, mailgun/gubernator#118
func TestNoProviderModelEverRefuses(t *testing.T) {
	prices := []int64{1, 2, 5, 10, 20, 40, 40, 40, 100}
	for name, pause := range map[string]func(*rand.Rand) time.Duration{"greedy": always, "bursts": bursts, "sparse": sparse} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				cfg := testConfig(func(c *gmailquota.Config) { c.InFlight = 40 })
				m := newMarket(seed, cfg)
				for i := range 12 {
					m.add(&caller{account: fmt.Sprint("user-", i%2), class: gmailquota.Class(i / 2 % 3), prices: prices, pause: pause})
				}
				m.run(30 * time.Minute)
				if m.refused > 0 {
					t.Errorf("%d refusals", m.refused)
				}
			})
		}
	}
}

// Demand above the limit is met with at least 97 % of it.
func TestTheDefaultBurstUsesTheLimit(t *testing.T) {
	m := newMarket(1, testConfig())
	for range 4 {
		m.add(&caller{account: "user", class: gmailquota.Backfill, prices: []int64{40, 10}, pause: always})
	}
	const minutes = 30
	m.run(minutes * time.Minute)
	if use := float64(m.units["user"]) / (minutes * float64(m.cfg.UserLimit)); use < 0.97 || m.refused > 0 {
		t.Errorf("use %.3f of the limit with %d refusals; want at least 0.97 with none", use, m.refused)
	}
}

// The project's limit holds for imports of many users, though each user's own bucket delays the calls that the project
// was charged for.
func TestTheProjectsLimitHoldsForManyUsers(t *testing.T) {
	cfg := testConfig(func(c *gmailquota.Config) { c.ProjectLimit = 30_000 })
	m := newMarket(3, cfg)
	for i := range 40 {
		m.add(&caller{account: fmt.Sprint("user-", i%20), class: gmailquota.Backfill, prices: []int64{2, 10, 40}, pause: bursts})
	}
	const minutes = 20
	m.run(minutes * time.Minute)
	var units int64
	for _, u := range m.units {
		units += u
	}
	if use := float64(units) / (minutes * float64(cfg.ProjectLimit)); use < 0.9 || m.refused > 0 {
		t.Errorf("use %.3f of the project's limit with %d refusals; want at least 0.9 with none", use, m.refused)
	}
}

// The list must be the project's own: with the new one a user's full fetches go at 300 a minute and none is refused;
// with the old one against the new meter Gmail would refuse steadily.
// kenn-io/msgvault internal/gmail/ratelimit_test.go, developer.nylas.com cookbook gmail-api-quotas
func TestTheRightPriceListFetches300MessagesAMinute(t *testing.T) {
	for _, list := range []string{gmailquota.Prices202605, gmailquota.PricesLegacy} {
		price, err := gmailquota.PriceOf(list, "messages.get")
		if err != nil {
			t.Fatal(err)
		}
		m := newMarket(1, testConfig())
		m.metered = func(int64) int64 { return 20 }
		for range 4 {
			m.add(&caller{account: "user", class: gmailquota.Backfill, prices: []int64{price}, pause: always})
		}
		const minutes = 10
		m.run(minutes * time.Minute)
		calls := m.units["user"] / 20 / minutes
		if list == gmailquota.Prices202605 && (calls < 290 || calls > 300 || m.refused > 0) {
			t.Errorf("%s: %d calls a minute, %d refusals; want 300 and none", list, calls, m.refused)
		}
		if list == gmailquota.PricesLegacy && m.refused == 0 {
			t.Errorf("%s: the meter refused nothing; this test proves nothing", list)
		}
	}
}
