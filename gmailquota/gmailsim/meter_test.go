package gmailsim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// profile makes n calls that cost one unit each, and counts the answers by status.
func (r *rig) profile(n int) map[int]int {
	codes := map[int]int{}
	for range n {
		codes[r.do("GET", "profile", nil).Code]++
	}
	return codes
}

// The three ways to measure a minute differ in what they let through after a pause and across a minute's edge.
func TestMeteringModes(t *testing.T) {
	for mode, c := range map[string]struct{ atEdge, after, later int }{
		// 600 units a minute. At 59 s of a calendar minute 600 calls are asked for, at 61 s and at 121 s again.
		meterFixed:   {600, 600, 600},
		meterSliding: {600, 0, 600},
		meterBucket:  {200, 20, 200},
	} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its time begins at midnight
				r := newRig(t, Config{UserLimit: 600, Metering: mode})
				time.Sleep(59 * time.Second)
				atEdge := r.profile(600)[200]
				time.Sleep(2 * time.Second)
				after := r.profile(600)[200]
				time.Sleep(time.Minute)
				later := r.profile(600)[200]
				if atEdge != c.atEdge || after != c.after || later != c.later {
					t.Errorf("let through %d, %d, %d; want %+v", atEdge, after, later, c)
				}
			})
		})
	}
}

func TestUserAndProjectLimitsRefuseDifferently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{UserLimit: 10, ProjectLimit: 15})
		r.profile(10)
		r.fails(403, "rateLimitExceeded", "GET", "profile", nil)
		other := *r
		other.token = r.login(r.s.AddAccount("bob@example.com"))
		other.profile(5)
		other.fails(429, "rateLimitExceeded", "GET", "profile", nil)
		s := r.s.Stats()
		want := map[string]int64{"user": 1, "project": 1}
		if s.Units != 15 || s.Refused != 2 || !maps.Equal(s.RefusedBy, want) || s.Calls["getProfile"] != 17 {
			t.Errorf("got %+v", s)
		}
		if s.MaxUserUnits60s != 11 || s.MaxProjectUnits60s != 17 {
			t.Errorf("most in 60 s: %d and %d, want 11 and 17, refused calls included", s.MaxUserUnits60s, s.MaxProjectUnits60s)
		}
	})
}

// The reported maximum is that of any 60 seconds, wherever they begin: compared with a sum over all windows.
func TestMostUnitsInAnySixtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(newMeter(Config{Metering: meterSliding}, time.Now))(t)
		random := rand.New(rand.NewPCG(1, 2))
		var events []event
		for range 2000 {
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			units := 1 + random.Int64N(100)
			m.admit(ann, "threads.get", units)
			m.done(ann)
			events = append(events, event{time.Now(), units})
		}
		var most int64
		for i := range events {
			var sum int64
			for _, e := range events[i:] {
				if e.at.Sub(events[i].at) < time.Minute {
					sum += e.units
				}
			}
			most = max(most, sum)
		}
		if got := m.snapshot(); got.MaxUserUnits60s != most || got.MaxProjectUnits60s != most {
			t.Errorf("got %d and %d, want %d", got.MaxUserUnits60s, got.MaxProjectUnits60s, most)
		}
	})
}

// amd/gaia#2720: too many calls at a time are refused whatever is left of the units.
func TestCallsInFlightHaveACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{InFlight: 3, Latency: time.Second})
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				code := r.do("GET", "profile", nil).Code
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			})
		}
		synctest.Wait()
		other := *r
		other.token = r.login(r.s.AddAccount("bob@example.com"))
		if got := other.profile(1); got[200] != 1 {
			t.Errorf("another user's call: %v", got)
		}
		all.Wait()
		if codes[200] != 3 || codes[429] != 2 {
			t.Errorf("got %v", codes)
		}
		if s := r.s.Stats(); s.MaxUserInFlight != 4 || s.RefusedBy["in-flight"] != 2 || s.Accounts[ann].InFlight != 0 {
			t.Errorf("got %+v", s)
		}
		if got := r.profile(1); got[200] != 1 {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// developer.nylas.com cookbook gmail-api-quotas: the two price lists differ by a factor of four where it matters.
func TestEachMethodHasItsPriceInBothLists(t *testing.T) {
	for _, e := range endpoints {
		for _, list := range []string{"2026-05", "legacy"} {
			if must(priceList(list))(t)[e.method] == 0 {
				t.Errorf("%s has no price in %s", e.method, list)
			}
		}
	}
	for list, want := range map[string]int64{"2026-05": 40 + 20 + 10 + 2, "legacy": 10 + 5 + 10 + 2} {
		r := newRig(t, Config{PriceList: list})
		m := r.deliver("a", "a@x")
		start := r.s.HistoryID(ann)
		r.ok("GET", "threads/"+m.ThreadID+"?format=minimal", nil)
		r.ok("GET", "messages/"+m.ID+"?format=raw", nil)
		r.ok("GET", "threads", nil)
		r.ok("GET", "history?startHistoryId="+formatID(start), nil)
		if got := r.s.Stats().Units; got != want {
			t.Errorf("%s: charged %d, want %d", list, got, want)
		}
	}
}

func TestChecksThatFailCostNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.do("GET", "threads?maxResults=501", nil)
	r.do("GET", "messages/xyz", nil)
	r.token = "wrong"
	r.do("GET", "profile", nil)
	if s := r.s.Stats(); s.Units != 0 || len(s.Calls) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestGetsAreCountedByThread(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.deliver("a", "a@x"), r.deliver("b", "b@x")
	for _, id := range []string{a.ID, b.ID, a.ID} {
		r.ok("GET", "threads/"+id, nil)
	}
	if got, want := r.s.Stats().Gets[ann], map[string]int{a.ID: 2, b.ID: 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"price list": {PriceList: "2027"}, "metering": {Metering: "daily"}, "limit": {UserLimit: -1},
		"latency": {Latency: -1}, "empty pages": {EmptyPages: 1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestUnknownAddressesAreErrors(t *testing.T) {
	s := must(New(Config{}))(t)
	defer s.Close()
	for name, do := range map[string]func() error{
		"Deliver":       func() error { _, err := s.Deliver("x@y", nil); return err },
		"Load":          func() error { _, err := s.Load("x@y", nil); return err },
		"Trash":         func() error { _, err := s.Trash("x@y", "1"); return err },
		"ExpireHistory": func() error { return s.ExpireHistory("x@y") },
		"Revoke":        func() error { return s.Revoke("x@y") },
		"AddLabel":      func() error { _, err := s.AddLabel("x@y", "l"); return err },
	} {
		if do() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if s.Mailbox("x@y") != nil || s.HistoryID("x@y") != 0 {
		t.Error("an unknown address has a mailbox")
	}
}

func TestAccountsOfTheSameAddressAreOne(t *testing.T) {
	r := newRig(t, Config{})
	if got := r.s.AddAccount(" Ann@Example.COM "); got != r.account {
		t.Errorf("got %+v, want %+v", got, r.account)
	}
	again := must(New(Config{}))(t)
	defer again.Close()
	if got := again.AddAccount(ann); got != r.account {
		t.Error("a restarted simulator gives another sub or refresh token")
	}
	r.s.AddAccount("bob@example.com")
	if got := r.s.Accounts(); len(got) != 2 || !slices.IsSortedFunc(got, func(a, b Account) int {
		if a.Address < b.Address {
			return -1
		}
		return 1
	}) {
		t.Errorf("got %v", got)
	}
}
