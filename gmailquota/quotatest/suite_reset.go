package quotatest

import (
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func (s *suite) reset(g *gmailquota.Guard, account string) {
	s.Helper()
	if err := g.Reset(ctx, account); err != nil {
		s.Fatal(err)
	}
}

// A reset ends a pause of any length: within the longest horizon, which the bucket may be in debt for, calls go on, one by
// one.
func (s *suite) resetUser() {
	g := s.ready()
	for range 3 { // three episodes and a stated time
		s.penalize(g, "a", gmailquota.Refusal{})
		s.r.Advance(5 * time.Second)
	}
	s.penalize(g, "a", gmailquota.Refusal{Scope: gmailquota.ScopeConcurrency, Until: s.r.Now().Add(15 * time.Minute)})
	s.deny(g, now("a", "getProfile"), gmailquota.BucketPenaltyUser)
	s.admit(g, now("b", "getProfile"))

	s.reset(g, "a")
	snap := s.snapshot(g, "a")
	if snap.User.Penalty > 0 || snap.InFlightCap != 10 || snap.User.FullIn > 32*time.Second {
		s.Fatalf("after a reset: %+v; want no pause, 10 calls at once, and a full bucket within 30 s and its refill", snap)
	}
	s.exact(g, now("a", "threads.get"), gmailquota.BucketUser)
	s.penalize(g, "a", gmailquota.Refusal{})
	if pause := s.snapshot(g, "a").User.Penalty; pause != time.Second {
		s.Errorf("the next pause is %v; want the first one's 1 s: the episodes of before are forgotten", pause)
	}
}

func (s *suite) resetProject() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Scope: gmailquota.ScopeProject, Until: s.r.Now().Add(time.Hour)})
	s.deny(g, now("b", "getProfile"), gmailquota.BucketPenaltyProject)
	s.reset(g, "a") // it is not a's pause
	s.deny(g, now("b", "getProfile"), gmailquota.BucketPenaltyProject)
	s.reset(g, "")
	s.exact(g, now("b", "getProfile"), gmailquota.BucketProject)
	if keys := s.r.Client.Keys(ctx, "gmailquota:*:user:").Val(); len(keys) > 0 {
		s.Errorf("the reset of the project made the keys %v", keys)
	}
}

// A reset gives nothing: a full bucket is empty after it, and what was reserved stays charged.
func (s *suite) resetGivesNothing() {
	g := s.ready()
	s.reset(g, "new")
	s.deny(g, now("new", "getProfile"), gmailquota.BucketUser)

	s.admit(g, now("a", "watch")).Release()
	var last time.Duration
	for range 5 {
		last = s.admit(g, get("a", gmailquota.Realtime)).Wait()
	}
	s.reset(g, "a")
	if snap := s.snapshot(g, "a"); snap.InFlight != 5 {
		s.Errorf("%d calls under way after a reset; want the 5 of before", snap.InFlight)
	}
	if gr := s.admit(g, get("a", gmailquota.Realtime)); gr.Wait() <= last {
		s.Errorf("after a reset a call may be made in %v; one reserved before it in %v", gr.Wait(), last)
	}
}
