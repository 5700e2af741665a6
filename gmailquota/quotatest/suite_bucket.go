package quotatest

import (
	"errors"
	"math"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func (s *suite) exactUser() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release() // 100 of 100
	for _, method := range []string{"history.list", "threads.get", "threads.list", "watch"} {
		s.exact(g, now("a", method), gmailquota.BucketUser)
	}
	s.r.Advance(10 * time.Second)
	s.admit(g, now("a", "watch")).Release()
	s.admit(g, get("a", gmailquota.Realtime)).Release()
	s.admit(g, get("a", gmailquota.Backfill)).Release()              // below its share
	s.exact(g, get("a", gmailquota.Backfill), gmailquota.BucketUser) // until it is within the horizon
	s.admit(g, get("a", gmailquota.Realtime)).Release()
	s.admit(g, get("a", gmailquota.Realtime)).Release()
	s.exact(g, get("a", gmailquota.Backfill), gmailquota.BucketUser) // until it is below its share
}

func (s *suite) exactProject() {
	g := s.ready(func(c *gmailquota.Config) { c.ProjectLimit, c.ProjectBurst = 7000, 201 })
	s.admit(g, now("a", "watch")).Release()
	s.admit(g, now("b", "watch")).Release()
	for _, account := range []string{"c", "d", "e"} {
		s.exact(g, now(account, "threads.get"), gmailquota.BucketProject)
	}
}

func (s *suite) reserves() {
	g := s.ready(func(c *gmailquota.Config) { c.InFlight = 100 })
	s.admit(g, now("a", "watch"))
	var last time.Duration
	for range 5 {
		gr := s.admit(g, get("a", gmailquota.Realtime))
		if gr.Wait() <= last {
			s.Fatalf("reserved %v ahead, after one of %v", gr.Wait(), last)
		}
		last = gr.Wait()
	}
	// 200 units of debt: far beyond what a backfill call may reserve above its share, not for maintenance.
	s.admit(g, get("a", gmailquota.Backfill))
	s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	s.admit(g, get("a", gmailquota.Maintenance))
}

func (s *suite) maxWait() {
	g := s.ready()
	s.admit(g, now("a", "watch"))
	wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
	r := get("a", gmailquota.Realtime)
	r.MaxWait = wait
	if gr := s.admit(g, r); gr.Wait() != wait {
		s.Errorf("reserved %v ahead; want all of the %v allowed", gr.Wait(), wait)
	}
	r.MaxWait = wait + 100*time.Millisecond
	if left := s.deny(g, r, gmailquota.BucketUser); left != wait-100*time.Millisecond {
		s.Errorf("a call that may wait for %v of %v is to come back in %v", r.MaxWait, 2*wait, left)
	}
}

// A refused request takes nothing.
// upstash/ratelimit-js#156, rwz/redis-gcra#6
func (s *suite) denialChangesNothing() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release()
	s.release(g)
	before := s.snapshot(g, "a")
	wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
	for range 100 {
		if again := s.deny(g, now("a", "threads.get"), gmailquota.BucketUser); again != wait {
			s.Fatalf("the wait became %v, from %v", again, wait)
		}
	}
	if after := s.snapshot(g, "a"); after != before {
		s.Errorf("denials changed the buckets from %+v to %+v", before, after)
	}
}

// redis/redis#15113, speakeasy-api/gram#3676
func (s *suite) impossible() {
	g := s.ready()
	before := s.snapshot(g, "a")
	for name, r := range map[string]gmailquota.Request{
		"no price":          {Account: "a", Method: "threads.fetch"},
		"dearer than full":  {Account: "a", Method: "threads.get", Units: 101},
		"a million":         {Account: "a", Method: "threads.get", Units: 1_000_000},
		"past any number":   {Account: "a", Method: "threads.get", Units: math.MaxInt64},
		"negative":          {Account: "a", Method: "threads.get", Units: -5},
		"too many at once":  {Account: "a", Method: "getProfile", Calls: 11},
		"negative calls":    {Account: "a", Method: "getProfile", Calls: -1},
		"a batch too large": {Account: "a", Method: "threads.get", Calls: 3},
	} {
		_, err := g.Acquire(ctx, r)
		var price *gmailquota.PriceError
		if !errors.As(err, &price) {
			s.Errorf("%s: %v; want a PriceError", name, err)
		}
	}
	if _, err := g.Acquire(ctx, gmailquota.Request{Method: "threads.get"}); !errors.Is(err, gmailquota.ErrNoAccount) {
		s.Errorf("without an account: %v; want ErrNoAccount", err)
	}
	if after := s.snapshot(g, "a"); after != before {
		s.Errorf("impossible calls changed the buckets from %+v to %+v", before, after)
	}
}

// cristipufu/aspnetcore-redis-rate-limiting#46, getsentry/sentry#122038
func (s *suite) startsEmpty() {
	g := s.guard()
	s.exact(g, now("a", "threads.get"), gmailquota.BucketUser)
	s.r.Advance(61 * time.Second)
	s.admit(g, now("new", "watch")).Release() // the project is known: a new user is new
	if err := s.r.Client.FlushAll(ctx).Err(); err != nil {
		s.Fatal(err)
	}
	s.r.Advance(0) // the test's clock is a key too
	s.deny(g, now("new", "watch"), gmailquota.BucketUser)
}

func (s *suite) fullAfterRest() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release()
	s.r.Advance(30 * 24 * time.Hour)
	s.admit(g, get("a", gmailquota.Realtime)).Release() // makes the project's key again
	s.r.Advance(2 * time.Minute)
	if snap := s.snapshot(g, "a"); snap.User.Tokens != snap.User.Capacity {
		s.Errorf("after a rest the bucket holds %d of %d", snap.User.Tokens, snap.User.Capacity)
	}
	s.admit(g, now("a", "watch")).Release()
	s.deny(g, now("a", "getProfile"), gmailquota.BucketUser)
}

// PostHog/posthog#60838, SGrondin/bottleneck#180, redis/go-redis#3228
func (s *suite) scriptFlush() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release()
	if err := s.r.Client.ScriptFlush(ctx).Err(); err != nil {
		s.Fatal(err)
	}
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
}

// spring-cloud/spring-cloud-gateway#2412, zeromicro/go-zero#4072
func (s *suite) clockBack() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release()
	for _, back := range []time.Duration{time.Hour, time.Second, 10 * time.Millisecond} {
		s.r.Back(back)
		wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketUser)
		if wait > 3*time.Second {
			s.Fatalf("the clock was set back by %v: the wait is %v", back, wait)
		}
		s.r.Advance(wait)
		s.admit(g, now("a", "threads.get")).Release()
	}
}

// redis/redis#15093, Losant/redis-gcra#6
func (s *suite) ttl() {
	g := s.ready(func(c *gmailquota.Config) { c.UserLimit = 160; c.KeyTTL = 3 * time.Minute })
	s.admit(g, now("a", "watch"))
	for range 3 {
		full := s.snapshot(g, "a").User.FullIn
		for _, key := range s.r.Client.Keys(ctx, "gmailquota:*:user:YQ").Val() {
			if left := s.r.Client.PTTL(ctx, key).Val(); left < full || left > 3*time.Minute {
				s.Errorf("the key lives for %v; want at least the %v until full and at most keyTTL", left, full)
			}
		}
		s.r.Advance(20 * time.Second)
	}
}

// A process's own clock has no part in a decision: workers hours apart use the units of one.
// spring-cloud/spring-cloud-gateway#2412, sourcegraph-public-snapshot#56826
func (s *suite) clocksApart() {
	workers := []*gmailquota.Guard{s.ready()}
	for _, off := range []time.Duration{-time.Hour, -time.Second, time.Second, 24 * time.Hour} {
		workers = append(workers, s.guardAt(func() time.Time { return s.r.Now().Add(off) }))
	}
	var units int64
	for i := range 40 {
		gr, err := workers[i%len(workers)].Acquire(ctx, now("a", "threads.list"))
		if err == nil {
			units += gr.Units()
			gr.Release()
		}
	}
	if units < 90 || units > 100 { // each charge is rounded up to a microsecond, so the last may be denied
		s.Errorf("%d units came out of a bucket of 100", units)
	}
}

// redis/redis#13115, bucket4j/bucket4j#51
func (s *suite) slow() {
	g := s.ready(func(c *gmailquota.Config) {
		c.UserCapacity, c.UserRefill, c.KeyTTL = 100, 6, 24*time.Hour // a unit in 10 s
	})
	s.admit(g, now("a", "watch")).Release()
	s.exact(g, now("a", "getProfile"), gmailquota.BucketUser)
	s.r.Advance(30 * 24 * time.Hour)
	s.admit(g, gmailquota.Request{Account: "other", Method: "getProfile", Class: gmailquota.Realtime}).Release() // makes the project's key again
	s.r.Advance(2 * time.Minute)
	s.admit(g, now("a", "watch")).Release()
	s.exact(g, now("a", "getProfile"), gmailquota.BucketUser)
}

// A key that something else wrote to is a missing one; it denies nobody for good and stops no other user.
func (s *suite) foreign() {
	g := s.ready()
	s.admit(g, now("a", "getProfile")).Release()
	user := s.r.Client.Keys(ctx, "gmailquota:*:user:YQ").Val()[0]
	const rest = " 0 0 0 0 0 0 0 0"
	for _, text := range []string{
		"", "hello", "2", "1 0 0 0 0 0 0|", "2 0 0 0 0 0 0" + rest, "2 -5 0 0 0 0 0" + rest + "|", "2 0 0 0 0 0 1" + rest + "|~short",
		"2 1e9 0 0 0 0 0" + rest + "|", "2 0 0 0 0 0" + rest + "|0|", "2 9999999999999999 0 0 0 0 0" + rest + "|",
		"2 0 9999999999999999 9 0 0 0" + rest + "|", "2 0 0 0 0 0 0 0 9999999999999999 0 0 9999999999999999 0 9999999999999999 0|",
	} {
		if err := s.r.Client.Set(ctx, user, text, time.Hour).Err(); err != nil {
			s.Fatal(err)
		}
		gr, err := g.Acquire(ctx, get("a", gmailquota.Realtime))
		if err != nil {
			s.Errorf("with %q for a state: %v", text, err)
			continue
		}
		gr.Release()
	}
}
