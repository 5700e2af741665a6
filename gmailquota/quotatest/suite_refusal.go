package quotatest

import (
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func (s *suite) exactPenalty() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Until: s.r.Now().Add(15 * time.Minute)})
	wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketPenaltyUser)
	s.r.Advance(wait - time.Microsecond)
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser) // the pause is over, the bucket fills
	s.r.Advance(time.Microsecond)
	s.admit(g, now("a", "threads.get")).Release()
}

func (s *suite) penalize(g *gmailquota.Guard, account string, r gmailquota.Refusal) {
	s.Helper()
	if err := g.Penalize(ctx, account, r); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) pause(g *gmailquota.Guard, account string, want time.Duration) {
	s.Helper()
	if got := s.snapshot(g, account).User.Penalty; got != want {
		s.Fatalf("the pause has %v left; want %v", got, want)
	}
}

// rowboatlabs/rowboat#949, mdupreejr/youtube-thumbs#22
func (s *suite) oneEpisode() {
	g, other := s.ready(), s.guard()
	until := s.r.Now().Add(5 * time.Minute)
	s.penalize(g, "a", gmailquota.Refusal{Until: until})
	s.r.Advance(time.Minute)
	for range 10 {
		s.penalize(other, "a", gmailquota.Refusal{})
	}
	s.pause(g, "a", 4*time.Minute)
	s.r.Advance(4 * time.Minute)
	s.penalize(g, "a", gmailquota.Refusal{})
	s.pause(g, "a", 2*time.Second) // the second episode
}

func (s *suite) episodesGrow() {
	g := s.ready()
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		pause := time.Duration(want) * time.Second
		s.penalize(g, "a", gmailquota.Refusal{})
		s.pause(g, "a", pause)
		s.r.Advance(pause)
	}
	s.r.Advance(10 * time.Minute)
	s.penalize(g, "a", gmailquota.Refusal{})
	s.pause(g, "a", time.Second)
}

func (s *suite) statedTime() {
	g := s.ready()
	start := s.r.Now()
	at := func(d time.Duration) gmailquota.Refusal { return gmailquota.Refusal{Until: start.Add(d)} }
	s.penalize(g, "a", at(-time.Hour)) // the past is no statement
	s.pause(g, "a", time.Second)
	s.penalize(g, "a", at(10*time.Minute))
	s.penalize(g, "a", at(5*time.Minute))
	s.pause(g, "a", 10*time.Minute)
	s.penalize(g, "b", at(365*24*time.Hour))
	s.pause(g, "b", 24*time.Hour)
}

func (s *suite) reentry() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Until: s.r.Now().Add(time.Minute)})
	s.r.Advance(time.Minute)
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
	s.r.Advance(409 * time.Millisecond) // 40 units at 5,880 a minute
	s.admit(g, now("a", "threads.get"))
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
}

func (s *suite) projectPenalty() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Scope: gmailquota.ScopeProject, Until: s.r.Now().Add(time.Hour)})
	wait := s.deny(g, get("b", gmailquota.Realtime), gmailquota.BucketPenaltyProject)
	if wait < 59*time.Minute || wait > time.Hour {
		s.Errorf("a wait of %v; want an hour less what may be reserved", wait)
	}
}

func (s *suite) concurrency() {
	g := s.ready()
	refused := gmailquota.Refusal{Scope: gmailquota.ScopeConcurrency}
	for range 10 {
		s.penalize(g, "a", refused) // one episode
	}
	snap := s.snapshot(g, "a")
	if snap.InFlightCap != 5 || snap.User.Tokens != snap.User.Capacity || snap.User.Penalty != 0 {
		s.Fatalf("after a concurrency refusal: %+v", snap)
	}
	for range 5 {
		s.admit(g, now("a", "getProfile"))
	}
	s.deny(g, now("a", "getProfile"), gmailquota.BucketInFlight)
	s.r.Advance(2 * time.Minute)
	if n := s.snapshot(g, "a").InFlightCap; n != 7 {
		s.Errorf("two minutes later the cap is %d; want 7", n)
	}
	for range 9 {
		s.penalize(g, "a", refused)
		s.r.Advance(6 * time.Second)
	}
	if n := s.snapshot(g, "a").InFlightCap; n != 1 {
		s.Errorf("after many episodes the cap is %d; want 1", n)
	}
}

// rowboatlabs/rowboat#949
func (s *suite) atTheSameMoment() {
	workers := []*gmailquota.Guard{s.ready(), s.guard(), s.guard()}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if err := workers[i%len(workers)].Penalize(ctx, "a", gmailquota.Refusal{}); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	s.pause(workers[0], "a", time.Second)
	s.r.Advance(time.Second)
	s.penalize(workers[1], "a", gmailquota.Refusal{})
	s.pause(workers[0], "a", 2*time.Second) // the 60 were one strike
}

// The calls under way when Gmail refuses are refused with it, and some answers come after the pause.
// rowboatlabs/rowboat#949
func (s *suite) lateAnswer() {
	g := s.ready()
	first, late := s.admit(g, now("a", "getProfile")), s.admit(g, now("a", "getProfile"))
	crowded := s.admit(g, now("b", "getProfile"))
	refused := func(gr *gmailquota.Grant, scope gmailquota.Scope) {
		if err := gr.Refused(ctx, gmailquota.Refusal{Scope: scope}); err != nil {
			s.Fatal(err)
		}
		gr.Release()
	}
	s.r.Advance(time.Millisecond)
	refused(first, gmailquota.ScopeUser)
	refused(s.admit(g, now("b", "getProfile")), gmailquota.ScopeConcurrency)
	s.r.Advance(6 * time.Second)
	refused(late, gmailquota.ScopeUser)
	refused(crowded, gmailquota.ScopeConcurrency)
	s.pause(g, "a", 0)
	if n := s.snapshot(g, "b").InFlightCap; n != 5 {
		s.Errorf("the in-flight cap is %d; want half of 10", n)
	}
	s.r.Advance(time.Second)
	refused(s.admit(g, now("a", "getProfile")), gmailquota.ScopeUser)
	s.pause(g, "a", 2*time.Second) // a second episode
}

func (s *suite) effective(g *gmailquota.Guard, want int64) {
	s.Helper()
	if b := s.snapshot(g, "a").User; b.Effective != b.Refill*want/1000 {
		s.Fatalf("%d of %d units a minute; want %d ‰", b.Effective, b.Refill, want)
	}
}

func (s *suite) learns() {
	g, other := s.ready(), s.guard()
	s.penalize(g, "a", gmailquota.Refusal{Until: s.r.Now().Add(time.Second)})
	s.effective(g, 1000) // Gmail said when
	s.r.Advance(20 * time.Second)
	s.penalize(g, "a", gmailquota.Refusal{})
	s.penalize(other, "a", gmailquota.Refusal{}) // of the same episode
	s.effective(other, 850)
	s.r.Advance(time.Second)
	for range 100 { // as many as the bucket and the half second of it that was left hold
		if gr, err := g.Acquire(ctx, now("a", "getProfile")); err == nil {
			gr.Release()
		}
		s.r.Advance(10 * time.Millisecond)
	}
	if n := s.snapshot(g, "a").User.Tokens; n > 2 {
		s.Errorf("%d units left", n)
	}
	wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
	if least := time.Duration(38*1000/850) * time.Minute / 5880; wait < least {
		s.Errorf("40 units in %v; at 85 %% of the rate they take at least %v", wait, least)
	}
	s.r.Advance(15 * time.Minute)
	s.effective(g, 1000)
	for range 60 { // Gmail refuses whatever comes
		s.penalize(g, "a", gmailquota.Refusal{})
		s.r.Advance(s.snapshot(g, "a").User.Penalty)
	}
	s.effective(g, 10)
}

func (s *suite) dearAtALowRate() {
	g := s.ready()
	for range 8 {
		s.penalize(g, "a", gmailquota.Refusal{})
		s.r.Advance(s.snapshot(g, "a").User.Penalty)
	}
	wait := s.deny(g, now("a", "watch"), gmailquota.BucketUser)
	s.r.Advance(wait - time.Microsecond)
	s.deny(g, now("a", "watch"), gmailquota.BucketUser)
	s.r.Advance(time.Second) // the rate grows meanwhile, so that the wait is the longest that it may be
	s.admit(g, now("a", "watch")).Release()
}

// A reservation that was made before the refusal is paid; new ones wait for the pause.
func (s *suite) refundInAPause() {
	g := s.ready()
	gr := s.admit(g, now("a", "watch"))
	s.penalize(g, "a", gmailquota.Refusal{Until: s.r.Now().Add(time.Minute)})
	gr.Refund(ctx)
	s.pause(g, "a", time.Minute)
	s.r.Advance(time.Minute)
	s.deny(g, now("a", "getProfile"), gmailquota.BucketUser) // the refund shortened neither the pause nor what follows
}

// What a concurrency refusal lowered grows again, and pauses end, when the clock is set back.
// spring-cloud/spring-cloud-gateway#2412
func (s *suite) clockBackInAPause() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Scope: gmailquota.ScopeConcurrency})
	s.penalize(g, "b", gmailquota.Refusal{Until: s.r.Now().Add(24 * time.Hour)})
	s.penalize(g, "first", gmailquota.Refusal{Scope: gmailquota.ScopeProject})
	s.r.Advance(time.Second)
	s.r.Back(48 * time.Hour)
	s.deny(g, now("a", "getProfile"), gmailquota.BucketProject) // the project's bucket is empty, not paused
	s.r.Advance(time.Minute)
	s.admit(g, now("a", "getProfile")).Release()
	s.admit(g, get("b", gmailquota.Realtime)).Release()
	s.penalize(g, "a", gmailquota.Refusal{Scope: gmailquota.ScopeConcurrency})
	if n := s.snapshot(g, "a").InFlightCap; n != 3 {
		s.Errorf("after a second episode the cap is %d; want half of 6", n)
	}
	s.r.Advance(2 * time.Minute)
	if n := s.snapshot(g, "a").InFlightCap; n != 5 {
		s.Errorf("two minutes later the cap is %d; want 5", n)
	}
}
