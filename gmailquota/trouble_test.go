package gmailquota_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// manualClock is the guard's own clock.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// outage is a guard whose Redis can be put into trouble; all clocks stand still.
type outage struct {
	proxy *quotatest.Proxy
	redis *quotatest.Clock
	clock *manualClock
	guard *gmailquota.Guard
}

func newOutage(t *testing.T, change ...func(*gmailquota.Config)) *outage {
	t.Helper()
	mini := miniredis.RunT(t)
	o := &outage{
		proxy: quotatest.NewProxy(t, mini.Addr()), redis: quotatest.NewClock(mini, noon), clock: &manualClock{now: noon},
	}
	o.guard = o.worker(t, change...)
	mustAdmit(t, o.guard, "first").Release()
	if err := o.guard.Close(context.Background()); err != nil { // or it would be told a second later, in the test's trouble
		t.Fatal(err)
	}
	o.advance(61 * time.Second) // new users start full from now on
	return o
}

func (o *outage) worker(t *testing.T, change ...func(*gmailquota.Config)) *gmailquota.Guard {
	t.Helper()
	cfg := testConfig(change...)
	opts, err := gmailquota.RedisOptions("redis://"+o.proxy.Addr, cfg.RedisTimeout)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	g, err := gmailquota.New(rdb, cfg, gmailquota.WithClock(o.clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (o *outage) advance(d time.Duration) {
	o.redis.Advance(d)
	o.clock.Advance(d)
}

func impatient(c *gmailquota.Config) { c.RedisTimeout = 50 * time.Millisecond }

func request(account string) gmailquota.Request {
	return gmailquota.Request{Account: account, Method: "threads.get", Class: gmailquota.Realtime}
}

func immediate(account string) gmailquota.Request {
	r := request(account)
	r.MaxWait = -1
	return r
}

func mustAdmit(t *testing.T, g *gmailquota.Guard, account string) *gmailquota.Grant {
	t.Helper()
	gr, err := g.Acquire(context.Background(), request(account))
	if err != nil {
		t.Fatal(err)
	}
	return gr
}

func mustBeUnavailable(t *testing.T, g *gmailquota.Guard) time.Duration {
	t.Helper()
	_, err := g.Acquire(context.Background(), request("a"))
	var away *gmailquota.UnavailableError
	if !errors.As(err, &away) || away.Wait <= 0 {
		t.Fatalf("%v; want an UnavailableError with a wait", err)
	}
	return away.Wait
}

// A Redis that answers with an error has not granted anything, and is asked again when it is well.
// PostHog/posthog#60838, SGrondin/bottleneck#180, redis/go-redis#2229
func TestAnErrorOfRedisIsNotAGrant(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"CROSSSLOT Keys in request don't hash to the same slot",
		"LOADING Redis is loading the dataset in memory",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk",
		"ERR user_script:1: attempt to index a nil value",
		"NOSCRIPT No matching script.", // even to EVAL
	} {
		t.Run(text[:8], func(t *testing.T) {
			o := newOutage(t)
			o.proxy.Fail(text)
			wait := mustBeUnavailable(t, o.guard)
			o.proxy.Pass()
			mustBeUnavailable(t, o.guard) // not asked before the quoted wait is over
			o.advance(wait)
			mustAdmit(t, o.guard, "a")
		})
	}
}

// erpc/erpc#1113, envoyproxy/ratelimit#462
func TestAHungRedisHoldsNobody(t *testing.T) {
	o := newOutage(t, impatient)
	before := o.proxy.Commands()
	o.proxy.Hang()
	began := time.Now()
	for range 1000 {
		mustBeUnavailable(t, o.guard)
	}
	if n := o.proxy.Commands() - before; n != 1 {
		t.Errorf("the hung Redis was asked %d times; want once, until the breaker's time is over", n)
	}
	// One timeout of 50 ms; a client with its own defaults would hold each call for 5 to 10 s.
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("1,000 calls took %v", took)
	}
}

func TestAClosedPortIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	g, err := gmailquota.New(quotatest.Client(t, addr), testConfig())
	if err != nil {
		t.Fatal(err)
	}
	mustBeUnavailable(t, g)
}

// The caller's own end is no outage: it is returned as it is, and neither the breaker nor the fallback hears of it, or the
// next decision would drain the project's bucket.
func TestACallersContextEndsTheWaitForRedis(t *testing.T) {
	cause := errors.New("shutting down")
	for name, c := range map[string]struct {
		hangs bool
		want  error
		end   func() (context.Context, context.CancelFunc)
	}{
		"canceled": {true, cause, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(cause)
			return ctx, func() {}
		}},
		"its deadline is past, Redis is well": {false, context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
			return context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
		}},
		"its deadline comes first": {true, context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond) // Redis would have 10 s
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.RedisTimeout = true, 10*time.Second })
			if c.hangs {
				o.proxy.Hang()
			}
			ctx, cancel := c.end()
			defer cancel()
			if gr, err := o.guard.Acquire(ctx, request("a")); !errors.Is(err, c.want) || gr != nil {
				t.Fatalf("%v, %v; want %v", gr, err, c.want)
			}
			o.proxy.Pass()
			if gr := mustAdmit(t, o.guard, "a"); gr.Wait() != 0 {
				t.Errorf("the next call waits %v; want the full bucket", gr.Wait())
			}
			if s := o.guard.Stats(); s.Unavailable != 0 || s.Fallback != 0 {
				t.Errorf("%+v; want no outage", s)
			}
		})
	}
}

// A refusal counts for all processes, also where its own call has been given up.
func TestARefusalOutlivesItsCall(t *testing.T) {
	o := newOutage(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.guard.Penalize(ctx, "a", gmailquota.Refusal{Until: noon.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	_, err := o.worker(t).Acquire(context.Background(), request("a"))
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) || denied.Bucket != gmailquota.BucketPenaltyUser {
		t.Errorf("%v; want a denial by the penalty", err)
	}
}

// What a decision should have carried is not lost with it.
func TestCallsThatEndedAreToldAfterAFailedDecision(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.InFlight = 1 })
	mustAdmit(t, o.guard, "a").Release()
	o.guard.Opened(time.Minute)
	mustBeUnavailable(t, o.guard)
	o.guard.Opened(0)
	mustAdmit(t, o.guard, "a")
}

// Redis away and FailOpen: calls go through the buckets of this process, which start empty and together with those of
// the other workers keep the limit.
func TestTheLocalFallbackKeepsThisWorkersShare(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.Workers = true, 3 })
	o.proxy.Fail("LOADING")
	if _, err := o.guard.Acquire(context.Background(), immediate("a")); err == nil {
		t.Error("the local bucket did not start empty")
	}
	meter := &quotatest.SlidingMinute{Limit: 6000 / 3}
	var units int64
	const minutes = 5
	for end := o.clock.Now().Add(minutes * time.Minute); o.clock.Now().Before(end); {
		gr, err := o.guard.Acquire(context.Background(), immediate("a"))
		var denied *gmailquota.DeniedError
		if errors.As(err, &denied) {
			o.clock.Advance(denied.Wait)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !meter.Charge(o.clock.Now().Sub(noon), gr.Units()) {
			t.Fatal("more than a third of the limit in 60 s")
		}
		units += gr.Units()
		gr.Release()
	}
	if units < minutes*2000*9/10 {
		t.Errorf("%d units in %d minutes; want at least 90 %% of the share of 2,000", units, minutes)
	}
	s := o.guard.Stats()
	if s.Fallback == 0 || s.Fallback != s.Unavailable {
		t.Errorf("stats %+v", s)
	}
}

// What passed Redis by is missing from its buckets, so they are empty after an outage.
func TestRedisBucketsAreEmptyAfterAnOutage(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen = true })
	o.proxy.Fail("LOADING")
	mustAdmit(t, o.guard, "a").Release()
	o.proxy.Pass()
	o.advance(3 * time.Second)
	_, err := o.guard.Acquire(context.Background(), immediate("a"))
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) {
		t.Fatalf("%v; want a denial: the bucket in Redis does not know of the local call", err)
	}
	o.advance(denied.Wait)
	if _, err := o.guard.Acquire(context.Background(), immediate("a")); err != nil {
		t.Fatal(err)
	}
	o.advance(2 * time.Second)
	if _, err := o.guard.Acquire(context.Background(), immediate("never seen in the outage")); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// A refusal that Redis could not be told holds in this process at once, and for all others once Redis is back.
func TestARefusalDuringAnOutageIsNotForgotten(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen = true })
	o.proxy.Fail("LOADING")
	ctx := context.Background()
	var away *gmailquota.UnavailableError
	if err := o.guard.Penalize(ctx, "a", gmailquota.Refusal{Until: noon.Add(16 * time.Minute)}); !errors.As(err, &away) {
		t.Fatalf("%v; want an UnavailableError", err)
	}
	var denied *gmailquota.DeniedError
	if _, err := o.guard.Acquire(ctx, request("a")); !errors.As(err, &denied) || denied.Bucket != gmailquota.BucketPenaltyUser {
		t.Fatalf("in the outage: %v; want the penalty to deny", err)
	}
	o.proxy.Pass()
	o.advance(3 * time.Second)
	_, _ = o.guard.Acquire(ctx, request("a"))
	other := o.worker(t)
	if _, err := other.Acquire(ctx, request("a")); !errors.As(err, &denied) || denied.Bucket != gmailquota.BucketPenaltyUser {
		t.Errorf("another worker afterwards: %v; want the penalty to deny", err)
	}
}

// Without the fallback nothing is metered during an outage. What Redis must know afterwards is remembered all the same.
func TestWhatPassedUnmeteredIsKnownAfterwards(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.LocalFallback = true, false })
	o.proxy.Fail("LOADING")
	ctx := context.Background()
	mustAdmit(t, o.guard, "a").Release()
	_ = o.guard.Penalize(ctx, "b", gmailquota.Refusal{Until: noon.Add(16 * time.Minute)})
	o.proxy.Pass()
	o.advance(3 * time.Second)
	for account, bucket := range map[string]string{"a": gmailquota.BucketUser, "b": gmailquota.BucketPenaltyUser} {
		_, err := o.guard.Acquire(ctx, immediate(account))
		var denied *gmailquota.DeniedError
		if !errors.As(err, &denied) || denied.Bucket != bucket {
			t.Errorf("%s: %v; want a denial by %s", account, err, bucket)
		}
	}
}

func TestFailOpenIsChangedWhileRunning(t *testing.T) {
	o := newOutage(t)
	o.proxy.Fail("LOADING")
	mustBeUnavailable(t, o.guard)
	o.guard.SetFailOpen(true)
	mustAdmit(t, o.guard, "a")
	o.guard.SetFailOpen(false)
	mustBeUnavailable(t, o.guard)
}

func TestFailOpenWithoutFallbackLetsEverythingPass(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.LocalFallback = true, false })
	o.proxy.Fail("LOADING")
	for range 1000 {
		gr := mustAdmit(t, o.guard, "a")
		if gr.Wait() != 0 {
			t.Fatalf("a wait of %v", gr.Wait())
		}
		gr.Refund(context.Background())
	}
}

// A timed-out charge may have been made; its call is not made, so it must not stay under way.
func TestATimedOutChargeIsReleased(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.RedisTimeout, c.InFlight = 200*time.Millisecond, 1 })
	o.proxy.LoseOne()
	wait := mustBeUnavailable(t, o.guard)
	o.advance(wait)
	mustAdmit(t, o.guard, "a")
}
