package quotatest

import (
	"errors"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// amd/gaia#2720, elie222/inbox-zero#1880, googleapis/google-api-dotnet-client#1982
func (s *suite) inFlight() {
	one, two := s.ready(), s.guard()
	var grants []*gmailquota.Grant
	for i := range 10 {
		g := one
		if i%2 == 1 {
			g = two
		}
		grants = append(grants, s.admit(g, now("a", "getProfile")))
	}
	if wait := s.deny(two, now("a", "getProfile"), gmailquota.BucketInFlight); wait > 250*time.Millisecond {
		s.Errorf("the wait for a call to end is quoted as %v", wait)
	}
	s.admit(two, now("b", "getProfile")) // another user is free
	grants[0].Release()                  // of guard one, which tells Redis when it is next asked
	grants[0].Release()
	s.admit(one, now("a", "getProfile"))
	s.deny(one, now("a", "getProfile"), gmailquota.BucketInFlight)
}

func (s *suite) leasesLapse() {
	dead, g := s.ready(), s.guard()
	for range 10 {
		s.admit(dead, now("a", "getProfile"))
	}
	s.r.Advance(10*time.Second - time.Microsecond)
	if wait := s.deny(g, now("a", "getProfile"), gmailquota.BucketInFlight); wait != time.Microsecond {
		s.Errorf("%v are quoted a microsecond before the calls lapse", wait)
	}
	s.r.Advance(time.Microsecond)
	s.admit(g, now("a", "getProfile"))
}

func (s *suite) releasesRide() {
	g := s.ready(func(c *gmailquota.Config) { c.InFlight = 1 })
	before := g.Stats().RedisCalls
	for range 5 {
		s.admit(g, now("a", "getProfile")).Release()
	}
	if n := g.Stats().RedisCalls - before; n != 5 {
		s.Errorf("5 calls took %d Redis calls", n)
	}
	s.admit(g, now("a", "getProfile")).Release()
	s.release(g)
	if snap := s.snapshot(g, "a"); snap.InFlight != 0 {
		s.Errorf("%d calls are under way after Close", snap.InFlight)
	}
}

func (s *suite) batch() {
	g := s.ready()
	gr := s.admit(g, gmailquota.Request{Account: "a", Method: "messages.get", Class: gmailquota.Realtime, Calls: 4})
	snap := s.snapshot(g, "a")
	if gr.Units() != 80 || snap.User.Tokens != 20 || snap.InFlight != 4 {
		s.Errorf("4 calls of 20 units: charged %d, left %d of 100, %d under way", gr.Units(), snap.User.Tokens, snap.InFlight)
	}
	s.deny(g, gmailquota.Request{Account: "a", Method: "getProfile", Calls: 7}, gmailquota.BucketInFlight)
	s.admit(g, gmailquota.Request{Account: "a", Method: "getProfile", Calls: 6})
}

func (s *suite) refundOnce() {
	g := s.ready()
	before := s.snapshot(g, "a")
	kept := s.admit(g, now("a", "threads.get"))
	gone := s.admit(g, now("a", "threads.get"))
	for range 3 {
		gone.Refund(ctx)
	}
	gone.Release()
	snap := s.snapshot(g, "a")
	if snap.User.Tokens != 60 || snap.InFlight != 1 {
		s.Errorf("after one of two calls was refunded: %d tokens, %d under way; want 60 and 1", snap.User.Tokens, snap.InFlight)
	}
	kept.Refund(ctx)
	if after := s.snapshot(g, "a"); after.User.Tokens != before.User.Tokens || after.Project.Tokens != before.Project.Tokens {
		s.Errorf("refunding all made %+v of %+v", after, before)
	}
	if units := g.Stats().Units; units != 1 { // ready's getProfile
		s.Errorf("%d units counted", units)
	}
}

// What refilled since the charge is not given back again.
func (s *suite) lateRefund() {
	g := s.ready()
	gone := s.admit(g, now("a", "watch"))
	s.r.Advance(5 * time.Second) // full again
	s.admit(g, now("a", "watch"))
	gone.Refund(ctx)
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
}

// Three characters hold the calls of one record.
func (s *suite) largestBatch() {
	g := s.ready(func(c *gmailquota.Config) { c.UserBurst, c.InFlight = 1000, 1000 })
	r := gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime, Calls: 1000}
	var price *gmailquota.PriceError
	if _, err := g.Acquire(ctx, r); !errors.As(err, &price) {
		s.Fatalf("1,000 calls at once: %v; want a PriceError", err)
	}
	r.Calls = 999
	gr := s.admit(g, r)
	s.admit(g, now("a", "getProfile")).Release()
	if snap := s.snapshot(g, "a"); snap.InFlight != 1000 {
		s.Errorf("%d calls are under way; want 1,000", snap.InFlight)
	}
	gr.Release()
	s.admit(g, get("a", gmailquota.Realtime))
	if snap := s.snapshot(g, "a"); snap.InFlight != 1 {
		s.Errorf("%d calls are under way after the batch; want 1", snap.InFlight)
	}
}

// Whoever ends a grant first does, and only once.
func (s *suite) endsOnce() {
	g := s.ready(func(c *gmailquota.Config) { c.InFlight = 50 })
	before := s.snapshot(g, "a")
	gr := s.admit(g, now("a", "threads.get"))
	kept := s.admit(g, now("a", "getProfile"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { gr.Refund(ctx) })
		wg.Go(gr.Release)
	}
	wg.Wait()
	kept.Release()
	s.release(g)
	snap := s.snapshot(g, "a")
	if used := before.User.Tokens - snap.User.Tokens; used != 1 && used != 41 || snap.InFlight != 0 {
		s.Errorf("%d units used and %d calls under way; want 1 or 41, and 0", used, snap.InFlight)
	}
}
