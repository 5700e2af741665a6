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

// overlap is a process whose decisions are under way together, on virtual time. Each is asked, reaches Redis 1 to 20 ms
// later, and is answered 1 to 20 ms after that, in any order; or, combined, they queue, and 16 at a time reach Redis after
// 10 ms and are answered after 10 more.
type overlap struct {
	combined bool
	asking   bool
	queue    []decided
	t        *testing.T
	rnd      *rand.Rand
	model    *gmailquota.Model
	guards   []*gmailquota.Guard
	start    int64
	events   events
	meters   map[string]*quotatest.SlidingMinute
	units    int64
}

func newOverlap(t *testing.T, seed uint64, workers int, change func(*gmailquota.Config)) *overlap {
	t.Helper()
	cfg := testConfig(change)
	o := &overlap{
		t: t, rnd: rand.New(rand.NewPCG(seed, 11)), start: noon.UnixMicro(), model: gmailquota.NewModel(cfg, noon.UnixMicro()),
		meters: map[string]*quotatest.SlidingMinute{},
	}
	for i := range workers {
		ahead := time.Duration(i) * time.Hour
		now := func() time.Time { return time.UnixMicro(o.model.Now).Add(ahead) }
		g, err := gmailquota.New(quotatest.Client(t, "127.0.0.1:1"), cfg, gmailquota.WithClock(now)) // it is not asked
		if err != nil {
			t.Fatal(err)
		}
		o.guards = append(o.guards, g)
	}
	return o
}

func (o *overlap) in(us int64, then func()) { heap.Push(&o.events, event{o.model.Now + us, then}) }

func (o *overlap) run(d time.Duration) {
	for end := o.model.Now + d.Microseconds(); len(o.events) > 0 && o.events[0].at <= end; {
		e := heap.Pop(&o.events).(event)
		o.model.Now = e.at
		e.then()
	}
}

// decided is a step for Redis, and what to do with the answer.
type decided struct {
	step gmailquota.Step
	then func(gmailquota.Decision)
}

func (o *overlap) decide(s gmailquota.Step, then func(gmailquota.Decision)) {
	if o.combined {
		o.queue = append(o.queue, decided{s, then})
		if !o.asking {
			o.next()
		}
		return
	}
	o.in(o.latency(), func() {
		d := o.model.Do(s)
		o.in(o.latency(), func() { then(d) })
	})
}

func (o *overlap) next() {
	n := min(len(o.queue), 16)
	all := o.queue[:n:n]
	o.queue, o.asking = o.queue[n:], n > 0
	if n == 0 {
		return
	}
	answers := make([]gmailquota.Decision, n)
	o.in(10_000, func() {
		for i, q := range all {
			answers[i] = o.model.Do(q.step)
		}
		o.in(10_000, func() {
			o.next()
			for i, q := range all {
				q.then(answers[i])
			}
		})
	})
}

func (o *overlap) latency() int64 { return 1000 + o.rnd.Int64N(19_000) }

// ask is one caller: it asks, sleeps, calls, pauses for up to so many µs, and asks again.
func (o *overlap) ask(g *gmailquota.Guard, account string, units, pause int64) {
	again := func() { o.ask(g, account, units, pause) }
	s, learn := g.Tell(gmailquota.Step{Op: "acquire", Account: account, ID: gmailquota.NewID(), Calls: 1, Units: units,
		Class: gmailquota.Realtime, Horizon: o.model.HorizonUS(gmailquota.Realtime)})
	o.decide(s, func(d gmailquota.Decision) {
		learn(d)
		if d[0] != 0 {
			o.in(d[1]+o.rnd.Int64N(50_000), again)
			return
		}
		o.in(d[1]+o.rnd.Int64N(150_000), func() {
			now := time.Duration(o.model.Now-o.start) * time.Microsecond
			if !o.meters[account].Charge(now, units) {
				o.t.Errorf("%s: above the limit at %v", account, now)
			}
			o.units += units
			o.model.Do(gmailquota.Step{Op: "release", Account: account, Released: s.ID})
			o.in(o.rnd.Int64N(pause), again)
		})
	})
}

func (o *overlap) callers(account string, n int, units, pause int64) {
	o.meters[account] = &quotatest.SlidingMinute{Limit: 6000}
	for i := range n {
		o.in(o.rnd.Int64N(300_000), func() { o.ask(o.guards[i%len(o.guards)], account, units, pause) })
	}
}

// A loss empties the project's bucket once. However many decisions are on their way at any time, what the process tells the
// new state must come to an end.
func TestAfterALossAProjectOfManyUsersRefills(t *testing.T) {
	for seed := range uint64(3) {
		o := newOverlap(t, seed, 1, func(*gmailquota.Config) {})
		o.combined = true
		const users = 300
		for i := range users {
			o.callers(fmt.Sprint("user-", i), 1, 2, 400_000)
		}
		full := func() time.Duration {
			_, project := o.model.FullIn("user-0")
			return project
		}
		o.run(3 * time.Second)
		before := full()
		o.model.Lose("")
		for i := range users {
			o.model.Lose(fmt.Sprint("user-", i))
		}
		o.run(5 * time.Second)
		if after := full(); before > 50*time.Millisecond || after > 50*time.Millisecond {
			t.Errorf("the project is full in %v before the loss and in %v five seconds after it; it is hardly used", before, after)
		}
	}
}

// Whatever of Redis' data is lost while decisions are under way, what is reserved is neither forgotten nor charged twice.
func TestTheLimitOutlivesRedisStateWhileDecisionsOverlap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workers, inFlight int
		every             int64 // µs
		user, project     bool  // what is lost; both false: one of them
		use               float64
	}{
		"everything":                       {1, 10, 20_000_000, true, true, 0.96},
		"everything, far ahead":            {1, 60, 20_000_000, true, true, 0.95},
		"everything, often":                {1, 60, 3_000_000, true, true, 0.90},
		"the project's key":                {1, 60, 5_000_000, false, true, 0.96},
		"either key":                       {1, 60, 5_000_000, false, false, 0.95},
		"three workers, everything":        {3, 60, 20_000_000, true, true, 0.85},
		"three workers, the project's key": {3, 60, 5_000_000, false, true, 0.90},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				o := newOverlap(t, seed, c.workers, func(cfg *gmailquota.Config) { cfg.InFlight, cfg.Workers = c.inFlight, c.workers })
				o.callers("a", 24, 40, 1)
				var lose func()
				lose = func() {
					user, project := c.user, c.project
					if !user && !project {
						user = o.rnd.IntN(2) == 0
						project = !user
					}
					if user {
						o.model.Lose("a")
					}
					if project {
						o.model.Lose("")
					}
					o.in(c.every+o.rnd.Int64N(c.every/2), lose)
				}
				o.in(c.every, lose)
				const minutes = 6
				o.run(minutes * time.Minute)
				use := float64(o.units) / (minutes * 6000)
				t.Logf("seed %d: most in 60 s %d, use %.3f", seed, o.meters["a"].Most(), use)
				if use < c.use {
					t.Errorf("seed %d: use %.3f; want at least %.2f", seed, use, c.use)
				}
			}
		})
	}
}
