package quotatest

import (
	"errors"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// crowded makes a guard whose user a has used what it may, and one more call of it that waits, with those that follow it.
func (s *suite) crowded(ahead int) (g *gmailquota.Guard, first gmailquota.Request, wait time.Duration) {
	s.Helper()
	g = s.ready(func(c *gmailquota.Config) { c.InFlight = 100 })
	s.admit(g, now("a", "watch")).Release()
	s.admit(g, get("a", gmailquota.Backfill)).Release()
	first = queued(ahead)
	return g, first, s.deny(g, first, gmailquota.BucketUser)
}

// queued is a request that keeps a place for itself and those that follow it.
func queued(ahead int) gmailquota.Request {
	r := get("a", gmailquota.Backfill)
	r.Turn = new(gmailquota.Turn)
	gmailquota.Expect(gmailquota.WithTurn(ctx, r.Turn), ahead)
	return r
}

func (s *suite) places() {
	g, first, wait := s.crowded(0)
	second := queued(0)
	later := s.deny(g, second, gmailquota.BucketUser)
	if later <= wait {
		s.Fatalf("the first waits for %v, the second for %v", wait, later)
	}
	s.r.Advance(wait)
	s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	s.admit(g, first).Release()
	s.r.Advance(later - wait)
	s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	s.admit(g, second).Release()
	s.admit(g, get("a", gmailquota.Realtime)).Release() // another class has a line of its own
}

func (s *suite) unclaimed() {
	g, _, dead := s.crowded(24)
	next := queued(24)
	wait := s.deny(g, next, gmailquota.BucketUser)
	if wait > dead+5*time.Second {
		s.Fatalf("nobody looks for %v whether those before come", wait)
	}
	s.r.Advance(wait)
	s.admit(g, next).Release()
	for range 3 { // the place moved to the present
		s.r.Advance(410 * time.Millisecond)
		s.admit(g, next).Release()
	}
}

func (s *suite) turn() {
	g, _, _ := s.crowded(0)
	var turn gmailquota.Turn
	job := gmailquota.WithTurn(ctx, &turn)
	gmailquota.Expect(job, 9)
	_, err := g.Acquire(job, get("a", gmailquota.Backfill))
	wait, ok := waitOf(err)
	if !ok {
		s.Fatalf("%v; want a denial", err)
	}
	s.r.Advance(wait)
	for i := range 10 {
		gr, err := g.Acquire(job, get("a", gmailquota.Backfill))
		if err != nil {
			s.Fatalf("call %d of the place: %v", i, err)
		}
		gr.Release()
		s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser) // a newcomer
		s.r.Advance(409 * time.Millisecond)
	}
}

func waitOf(err error) (time.Duration, bool) {
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) {
		return 0, false
	}
	return denied.Wait, true
}
