package quotatest

import (
	"context"
	"errors"
	"math"
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
		{"a call is reserved within its class's horizon", (*suite).reserves},
		{"MaxWait bounds a reservation", (*suite).maxWait},
		{"a denial changes nothing", (*suite).denialChangesNothing},
		{"an impossible call fails at once and changes nothing", (*suite).impossible},
		{"state that may be lost starts empty", (*suite).startsEmpty},
		{"a user is full after a rest", (*suite).fullAfterRest},
		{"calls under way are capped over all workers", (*suite).inFlight},
		{"the calls of a dead worker lapse", (*suite).leasesLapse},
		{"releases ride on the next decision", (*suite).releasesRide},
		{"a batch is charged and counted whole", (*suite).batch},
		{"a refund gives back once", (*suite).refundOnce},
		{"a late refund gives back what has not refilled", (*suite).lateRefund},
		{"refusals in a pause are one episode", (*suite).oneEpisode},
		{"pauses grow with each episode and are forgotten", (*suite).episodesGrow},
		{"only a later stated time moves the end of a pause", (*suite).statedTime},
		{"after a pause calls come back one by one", (*suite).reentry},
		{"a refusal of the project stops every user", (*suite).projectPenalty},
		{"a concurrency refusal lowers the cap, not the bucket", (*suite).concurrency},
		{"a flushed script cache is cured", (*suite).scriptFlush},
		{"a clock set back neither empties nor fills a bucket", (*suite).clockBack},
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
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen = false
	cfg.RedisTimeout = 10 * time.Second // the machine may be busy
	for _, c := range change {
		c(&cfg)
	}
	g, err := gmailquota.New(s.r.Client, cfg, gmailquota.WithClock(s.r.Now))
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
	gr, err := g.Acquire(ctx, r)
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) {
		s.Fatalf("%s for %s: grant %+v, error %v; want it denied by %s", r.Method, r.Account, gr, err, bucket)
	}
	if denied.Bucket != bucket || denied.Wait <= 0 {
		s.Fatalf("%s for %s: denied by %s for %v; want by %s", r.Method, r.Account, denied.Bucket, denied.Wait, bucket)
	}
	return denied.Wait
}

// exact checks both sides of a quoted wait.
func (s *suite) exact(g *gmailquota.Guard, r gmailquota.Request, bucket string) {
	s.Helper()
	wait := s.deny(g, r, bucket)
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

func (s *suite) exactUser() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release() // 100 of 100
	for _, method := range []string{"history.list", "threads.get", "threads.list", "watch"} {
		s.exact(g, now("a", method), gmailquota.BucketUser)
	}
	s.admit(g, get("a", gmailquota.Realtime)).Release()
	s.exact(g, get("a", gmailquota.Backfill), gmailquota.BucketUser) // until it comes within the horizon
}

func (s *suite) exactProject() {
	g := s.ready(func(c *gmailquota.Config) { c.ProjectLimit, c.ProjectBurst = 7000, 200 })
	s.admit(g, now("a", "watch")).Release()
	s.admit(g, now("b", "watch")).Release()
	for _, account := range []string{"c", "d", "e"} {
		s.exact(g, now(account, "threads.get"), gmailquota.BucketProject)
	}
}

func (s *suite) exactPenalty() {
	g := s.ready()
	s.penalize(g, "a", gmailquota.Refusal{Until: s.r.Now().Add(15 * time.Minute)})
	wait := s.deny(g, now("a", "threads.get"), gmailquota.BucketPenaltyUser)
	s.r.Advance(wait - time.Microsecond)
	s.deny(g, now("a", "threads.get"), gmailquota.BucketUser) // the pause is over, the bucket fills
	s.r.Advance(time.Microsecond)
	s.admit(g, now("a", "threads.get")).Release()
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
	// 200 units of debt: far beyond what a backfill call may reserve, not for maintenance.
	s.deny(g, get("a", gmailquota.Backfill), gmailquota.BucketUser)
	s.admit(g, get("a", gmailquota.Maintenance))
}

func (s *suite) maxWait() {
	g := s.ready()
	s.admit(g, now("a", "watch"))
	r := get("a", gmailquota.Realtime)
	r.MaxWait = 100 * time.Millisecond
	wait := s.deny(g, r, gmailquota.BucketUser)
	r.MaxWait += wait
	if gr := s.admit(g, r); gr.Wait() != r.MaxWait {
		s.Errorf("reserved %v ahead; want all of the %v allowed", gr.Wait(), r.MaxWait)
	}
}

// A refused request takes nothing.
// upstash/ratelimit-js#156, rwz/redis-gcra#6
func (s *suite) denialChangesNothing() {
	g := s.ready()
	s.admit(g, now("a", "watch")).Release()
	if err := g.Close(ctx); err != nil {
		s.Fatal(err)
	}
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
	if err := g.Close(ctx); err != nil {
		s.Fatal(err)
	}
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
