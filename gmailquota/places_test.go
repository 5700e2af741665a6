package gmailquota_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// waiters is 1,000 calls of one user at once, on three workers that know of each other only by Redis.
type waiters struct {
	*market
	scouts    [3]gmailquota.Scouts
	dead      int // worker; -1: none
	decisions int // after a call's first denial
	admitted  []int64
	order     []int
}

func (w *waiters) ask(i int, first bool, c *caller) {
	worker := i % 3
	if worker == w.dead {
		return
	}
	if !first {
		w.decisions++
	}
	d := w.model.Do(gmailquota.Step{
		Op: "acquire", Account: "user", ID: gmailquota.NewID(), Calls: 1, Units: 40, Class: c.class, Horizon: w.model.HorizonUS(c.class),
		MaxWait: 3 * time.Second, Patience: 1 << 50, From: c.ticket[0], To: c.ticket[1], Released: w.ended["user"],
	})
	delete(w.ended, "user")
	if d[0] == 0 {
		w.admitted = append(w.admitted, w.model.Now+d[1])
		w.order = append(w.order, i)
		return
	}
	if d[6] > 0 {
		c.ticket = [2]int64{d[5], d[6]}
	}
	w.at(w.model.Now+w.scouts[worker].Quote("user", c.class, w.model.Now, d)+w.rnd.Int64N(5000), func() { w.ask(i, false, c) })
}

func thousandWaiters(t *testing.T, class gmailquota.Class) *waiters {
	t.Helper()
	w := &waiters{market: newMarket(1, testConfig(func(c *gmailquota.Config) { c.InFlight = 1000 })), dead: -1}
	for i := range 1000 {
		w.at(w.model.Now+int64(i)*1000, func() { w.ask(i, true, &caller{class: class}) })
	}
	return w
}

// Calls that wait come back once each, in the order in which they came, and newcomers do not overtake them.
func TestAThousandWaitingCallsComeBackOnceAndInOrder(t *testing.T) {
	for _, class := range []gmailquota.Class{gmailquota.Backfill, gmailquota.Realtime} {
		w := thousandWaiters(t, class)
		for i := range 100 { // newcomers, while they wait
			n := 1000 + i
			w.at(w.model.Now+int64(20+i)*1_000_000, func() { w.ask(n, true, &caller{class: class}) })
		}
		w.run(15 * time.Minute)
		if len(w.admitted) != 1100 || w.decisions > 1430 {
			t.Errorf("%v: %d of 1,100 admitted in %d decisions; want at most 1.3 for each", class, len(w.admitted), w.decisions)
		}
		const cost = 408_164 // µs of a call
		for place, i := range w.order {
			if fair := int64(min(i, 1000)+1) * cost; i < 1000 && w.admitted[place]-w.start > fair*3/2+2_000_000 {
				t.Fatalf("%v: call %d waited %d µs; its fair wait is %d", class, i, w.admitted[place]-w.start, fair)
			}
			if i >= 1000 && place < 900 {
				t.Fatalf("%v: newcomer %d was admitted as number %d", class, i, place)
			}
		}
	}
}

// When one of three workers dies, the bucket idles for the others' next look at most, and all they have is done.
func TestADeadWorkersPlacesDoNotIdleTheBucket(t *testing.T) {
	w := thousandWaiters(t, gmailquota.Backfill)
	w.run(30 * time.Second)
	w.dead = 1
	w.run(15 * time.Minute)
	if len(w.admitted) < 667 {
		t.Fatalf("%d calls were admitted; the two workers left have 667", len(w.admitted))
	}
	slices.Sort(w.admitted)
	for i, at := range w.admitted[1:] {
		if gap := at - w.admitted[i]; gap > 5_000_000 {
			t.Errorf("the bucket idled for %d µs after call %d", gap, i)
		}
	}
	t.Logf("%d decisions, the last call after %d s", w.decisions, (w.admitted[len(w.admitted)-1]-w.start)/1_000_000)
}

// A place for many calls whose holder died is found by those behind it.
func TestALongPlaceThatNobodyClaimsIsTaken(t *testing.T) {
	m := newMarket(1, testConfig(func(c *gmailquota.Config) { c.InFlight = 100 }))
	ask := func(units, ahead int64, ticket [2]int64) gmailquota.Decision {
		return m.model.Do(gmailquota.Step{Op: "acquire", Account: "user", ID: gmailquota.NewID(), Calls: 1, Units: units, Ahead: ahead,
			Horizon: m.model.HorizonUS(gmailquota.Backfill), Patience: 1 << 50, From: ticket[0], To: ticket[1]})
	}
	for ask(40, 0, [2]int64{})[0] == 0 {
		m.model.Now++
	}
	ask(40, 24, [2]int64{}) // and its worker dies
	var worker gmailquota.Scouts
	d := ask(40, 24, [2]int64{})
	began := m.model.Now
	for d[0] != 0 {
		m.model.Now += worker.Quote("user", gmailquota.Backfill, m.model.Now, d)
		d = ask(40, 24, [2]int64{d[5], d[6]})
	}
	if waited := m.model.Now - began; waited > 5_000_000 || d[5] != m.model.Now {
		t.Errorf("admitted after %d µs with the place %v; want it moved to now, within 5 s", waited, d[5:])
	}
	for i := range 24 {
		if d := ask(40, 0, [2]int64{d[5], d[6]}); d[0] != 0 {
			t.Fatalf("call %d of the place was denied: %v", i, d)
		}
		m.model.Now += 408_164
	}
}
