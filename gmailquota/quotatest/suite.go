package quotatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Suite holds a guard on the Redis that start makes, one for each test, to its contract.
func Suite(t *testing.T, start func(t testing.TB) Redis) {
	tests := []struct {
		name string
		test func(s *suite)
	}{
		{"the quoted wait is exact for the user", (*suite).exactUser},
		{"the quoted wait is exact for the project", (*suite).exactProject},
		{"the quoted wait is exact for a penalty", (*suite).exactPenalty},
		{"the quoted wait is exact wherever the buckets stand", (*suite).exactAnywhere},
		{"a call is reserved within its class's horizon", (*suite).reserves},
		{"MaxWait bounds a reservation", (*suite).maxWait},
		{"newcomers do not overtake those who wait", (*suite).places},
		{"a place nobody claims is taken over", (*suite).unclaimed},
		{"a turn keeps the place of a job's calls", (*suite).turn},
		{"a denial changes nothing", (*suite).denialChangesNothing},
		{"an impossible call fails at once and changes nothing", (*suite).impossible},
		{"state that may be lost starts empty", (*suite).startsEmpty},
		{"a user is full after a rest", (*suite).fullAfterRest},
		{"calls under way are capped over all workers", (*suite).inFlight},
		{"the calls of a dead worker lapse", (*suite).leasesLapse},
		{"releases ride on the next decision", (*suite).releasesRide},
		{"a batch is charged and counted whole", (*suite).batch},
		{"the largest batch is counted whole", (*suite).largestBatch},
		{"a grant ends once", (*suite).endsOnce},
		{"a refund gives back once", (*suite).refundOnce},
		{"a late refund gives back what has not refilled", (*suite).lateRefund},
		{"refusals in a pause are one episode", (*suite).oneEpisode},
		{"refusals at the same moment are one strike", (*suite).atTheSameMoment},
		{"a refund shortens no pause", (*suite).refundInAPause},
		{"a clock set back ends what it put off for days", (*suite).clockBackInAPause},
		{"pauses grow with each episode and are forgotten", (*suite).episodesGrow},
		{"only a later stated time moves the end of a pause", (*suite).statedTime},
		{"after a pause calls come back one by one", (*suite).reentry},
		{"a refusal of the project stops every user", (*suite).projectPenalty},
		{"a late answer belongs to the episode of its call", (*suite).lateAnswer},
		{"the rate falls with refusals that state no time, and grows back", (*suite).learns},
		{"a dear call passes at a lowered rate", (*suite).dearAtALowRate},
		{"at the day's units backfill waits for the next day", (*suite).day},
		{"the day's units outlive rest, and a refund gives them back", (*suite).dayKept},
		{"a concurrency refusal lowers the cap, not the bucket", (*suite).concurrency},
		{"a reset ends a user's pause", (*suite).resetUser},
		{"a reset ends the project's pause", (*suite).resetProject},
		{"a reset gives nothing", (*suite).resetGivesNothing},
		{"a flushed script cache is cured", (*suite).scriptFlush},
		{"a clock set back neither empties nor fills a bucket", (*suite).clockBack},
		{"workers' clocks have no part in it", (*suite).clocksApart},
		{"a slow bucket stays exact", (*suite).slow},
		{"a state that something else wrote is a missing one", (*suite).foreign},
		{"a bucket's key outlives the time until it is full", (*suite).ttl},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(&suite{T: t, r: start(t)})
		})
	}
}

type suite struct {
	*testing.T
	r Redis
}

var ctx = context.Background()

// guard makes one worker's guard.
func (s *suite) guard(change ...func(*gmailquota.Config)) *gmailquota.Guard {
	s.Helper()
	return s.guardAt(s.r.Now, change...)
}

// guardAt makes the guard of a worker with a clock of its own.
func (s *suite) guardAt(clock func() time.Time, change ...func(*gmailquota.Config)) *gmailquota.Guard {
	s.Helper()
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen = false
	cfg.RedisTimeout = 10 * time.Second // the machine may be busy
	for _, c := range change {
		c(&cfg)
	}
	g, err := gmailquota.New(s.r.Client, cfg, gmailquota.WithClock(clock))
	if err != nil {
		s.Fatal(err)
	}
	return g
}

// ready makes a guard whose project is old enough that a new user starts full.
func (s *suite) ready(change ...func(*gmailquota.Config)) *gmailquota.Guard {
	s.Helper()
	g := s.guard(change...)
	s.admit(g, gmailquota.Request{Account: "first", Method: "getProfile", Class: gmailquota.Realtime}).Release()
	s.r.Advance(61 * time.Second)
	return g
}

func get(account string, c gmailquota.Class) gmailquota.Request {
	return gmailquota.Request{Account: account, Method: "threads.get", Class: c}
}

// now is a call that is made at once or not at all.
func now(account, method string) gmailquota.Request {
	return gmailquota.Request{Account: account, Method: method, Class: gmailquota.Realtime, MaxWait: -1}
}

func (s *suite) admit(g *gmailquota.Guard, r gmailquota.Request) *gmailquota.Grant {
	s.Helper()
	gr, err := g.Acquire(ctx, r)
	if err != nil {
		s.Fatalf("%s for %s: %v; want it admitted", r.Method, r.Account, err)
	}
	return gr
}

func (s *suite) deny(g *gmailquota.Guard, r gmailquota.Request, bucket string) time.Duration {
	s.Helper()
	return s.denied(g, r, bucket).Wait
}

func (s *suite) denied(g *gmailquota.Guard, r gmailquota.Request, bucket string) *gmailquota.DeniedError {
	s.Helper()
	gr, err := g.Acquire(ctx, r)
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) {
		s.Fatalf("%s for %s: grant %+v, error %v; want it denied by %s", r.Method, r.Account, gr, err, bucket)
	}
	if denied.Bucket != bucket || denied.Wait <= 0 {
		s.Fatalf("%s for %s: denied by %s for %v; want by %s", r.Method, r.Account, denied.Bucket, denied.Wait, bucket)
	}
	return denied
}

// exact checks both sides of a quoted wait.
func (s *suite) exact(g *gmailquota.Guard, r gmailquota.Request, bucket string) {
	s.Helper()
	denied := s.denied(g, r, bucket)
	wait := denied.Wait
	// It has no place of its own: nobody waits before it.
	s.r.Advance(wait - time.Microsecond)
	if left := s.deny(g, r, bucket); left != time.Microsecond {
		s.Fatalf("a microsecond before the wait of %v is over, %v are quoted", wait, left)
	}
	s.r.Advance(time.Microsecond)
	s.admit(g, r).Release()
}

func (s *suite) snapshot(g *gmailquota.Guard, account string) gmailquota.Snapshot {
	s.Helper()
	snap, err := g.Snapshot(ctx, account)
	if err != nil {
		s.Fatal(err)
	}
	return snap
}

// release tells Redis which calls ended.
func (s *suite) release(g *gmailquota.Guard) {
	s.Helper()
	if err := g.Close(ctx); err != nil {
		s.Fatal(err)
	}
}
