package quotatest

import (
	"errors"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// crowded makes a guard whose user a has used what it may, and one more call of it that waits.
func (s *suite) crowded(ahead int) (*gmailquota.Guard, *gmailquota.DeniedError) {
	s.Helper()
	g := s.ready(func(c *gmailquota.Config) { c.InFlight = 100 })
	s.admit(g, now("a", "watch")).Release()
	s.admit(g, get("a", gmailquota.Backfill)).Release()
	r := get("a", gmailquota.Backfill)
	r.Ahead = ahead
	return g, s.denied(g, r, gmailquota.BucketUser)
}

func (s *suite) places() {
	g, first := s.crowded(0)
	second := s.denied(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	if second.Wait <= first.Wait || second.Ticket == first.Ticket {
		s.Fatalf("the first waits for %v, the second for %v", first.Wait, second.Wait)
	}
	s.r.Advance(first.Wait)
	s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	r := get("a", gmailquota.Backfill)
	r.Ticket = first.Ticket
	s.admit(g, r).Release()
	s.r.Advance(second.Wait - first.Wait)
	r.Ticket = second.Ticket
	s.admit(g, r).Release()
	s.admit(g, get("a", gmailquota.Realtime)).Release() // another class has a line of its own
}

func (s *suite) unclaimed() {
	g, dead := s.crowded(24)
	r := get("a", gmailquota.Backfill)
	r.Ahead = 24
	next := s.denied(g, r, gmailquota.BucketUser)
	if next.Wait > dead.Wait+5*time.Second {
		s.Fatalf("nobody looks for %v whether those before come", next.Wait)
	}
	s.r.Advance(next.Wait)
	r.Ticket = next.Ticket
	gr := s.admit(g, r)
	if gr.Ticket() == next.Ticket {
		s.Fatal("the place did not move to the present")
	}
	for range 3 {
		s.r.Advance(410 * time.Millisecond)
		r.Ticket = gr.Ticket()
		gr = s.admit(g, r)
	}
}

func (s *suite) turn() {
	g, _ := s.crowded(0)
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
