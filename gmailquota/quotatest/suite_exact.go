package quotatest

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Both sides of each wait, wherever the buckets stand.
func (s *suite) exactAnywhere() {
	g := s.ready(func(c *gmailquota.Config) { c.ProjectLimit, c.ProjectBurst = 13_000, 150 })
	rnd := rand.New(rand.NewPCG(1, 5))
	methods := []string{"history.list", "threads.list", "messages.get", "threads.get", "watch"}
	checked := map[string]int{}
	for range 300 {
		r := gmailquota.Request{
			Account: []string{"a", "b", "c"}[rnd.IntN(3)], Method: methods[rnd.IntN(len(methods))], Class: gmailquota.Class(rnd.IntN(3)),
			MaxWait: []time.Duration{0, -1, time.Second}[rnd.IntN(3)],
		}
		if rnd.IntN(30) == 0 {
			s.penalize(g, r.Account, gmailquota.Refusal{Scope: gmailquota.Scope(rnd.IntN(2)), Until: s.r.Now().Add(time.Second)})
		}
		gr, err := g.Acquire(ctx, r)
		var denied *gmailquota.DeniedError
		switch {
		case err == nil:
			gr.Release()
		case !errors.As(err, &denied):
			s.Fatal(err)
		case denied.Bucket != gmailquota.BucketInFlight:
			checked[denied.Bucket]++
			s.bothSides(g, r, denied)
		}
		s.r.Advance(time.Duration(rnd.Int64N(int64(time.Second))))
	}
	for _, b := range []string{gmailquota.BucketUser, gmailquota.BucketProject, gmailquota.BucketPenaltyUser, gmailquota.BucketPenaltyProject} {
		if checked[b] == 0 {
			s.Errorf("no wait for %s was looked at", b)
		}
	}
}

// bothSides comes back with a denied request a microsecond before its wait is over, and then.
func (s *suite) bothSides(g *gmailquota.Guard, r gmailquota.Request, denied *gmailquota.DeniedError) {
	s.Helper()
	s.r.Advance(denied.Wait - time.Microsecond)
	var early *gmailquota.DeniedError
	if _, err := g.Acquire(ctx, r); !errors.As(err, &early) || early.Wait != time.Microsecond {
		s.Fatalf("%+v: denied for %v; a microsecond before that is over: %v; want it denied for another", r, denied.Wait, err)
	}
	s.r.Advance(time.Microsecond)
	s.admit(g, r).Release()
}
