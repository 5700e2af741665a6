package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// during is a hook that does something while the next run of the script is on its way.
type during struct{ then func() }

func (d *during) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *during) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *during) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if then := d.then; then != nil {
			d.then = nil
			then()
		}
		return next(ctx, cmd)
	}
}

// While one call finds out whether Redis is back, others go by the local buckets. Redis is told of these too.
func TestWhatPassesDuringTheProbeIsTold(t *testing.T) {
	for name, probe := range map[string]string{"by the user who probes": "a", "by another user": "b"} { // who has a part of the project
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			hook := &during{}
			rdb := quotatest.Client(t, o.proxy.Addr)
			rdb.AddHook(hook)
			cfg := testConfig(func(c *gmailquota.Config) {
				c.FailOpen, c.InFlight, c.ProjectLimit, c.ProjectBurst = true, 100, 60_000, 1000
			})
			g, err := gmailquota.New(rdb, cfg, gmailquota.WithClock(o.clock.Now))
			if err != nil {
				t.Fatal(err)
			}
			g.Opened(time.Minute)
			mustAdmit(t, g, "a")
			mustAdmit(t, g, probe)
			o.advance(time.Minute)
			watch := gmailquota.Request{Account: "a", Method: "watch", Class: gmailquota.Realtime}
			var last time.Duration
			hook.then = func() {
				for range 20 {
					gr, err := g.Acquire(context.Background(), watch)
					if err != nil {
						break
					}
					last = gr.Wait()
				}
				if last < 9*time.Second {
					t.Fatalf("the last local call is reserved in %v; this test needs many", last)
				}
			}
			mustAdmit(t, g, probe)
			if wait := mustAdmit(t, g, "a").Wait(); wait <= last {
				t.Errorf("the next call waits %v; a local one is reserved in %v", wait, last)
			}
			project := func() time.Duration {
				s, err := g.Snapshot(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				return s.Project.FullIn
			}
			// 20 calls of 100 units, of which the local bucket held 1,000; then a bucket of 1,000 refills; at 983 a second
			if full := project(); full < 2*time.Second && probe == "a" {
				t.Errorf("the project is full in %v; want it in debt", full)
			}
			o.advance(40 * time.Second)
			mustAdmit(t, g, "a")
			if full := project(); full > 50*time.Millisecond { // 40 units
				t.Errorf("long after it the project is full in %v: it is told again and again", full)
			}
		})
	}
}

// A Redis that is away for a moment when calls end learns of it afterwards.
func TestEndsOfCallsOutliveABlip(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		lost  bool
	}{"half a second": {500 * time.Millisecond, false}, "too long": {11 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			ctx := context.Background()
			var grants []*gmailquota.Grant
			for range 10 {
				gr, err := o.guard.Acquire(ctx, gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime})
				if err != nil {
					t.Fatal(err)
				}
				grants = append(grants, gr)
			}
			o.proxy.Fail("LOADING")
			for _, gr := range grants {
				gr.Release()
			}
			for range 2 { // what a timer does each second
				if err := o.guard.FlushReleases(ctx); err == nil && !c.lost {
					t.Fatal("Redis was told")
				}
				o.advance(c.lasts)
			}
			o.proxy.Pass()
			if n := o.guard.Waiting(); c.lost != (n == 0) {
				t.Errorf("%d accounts' ends wait to be told after %v", n, 2*c.lasts)
			}
			mustAdmit(t, o.guard, "a")
		})
	}
}

// One worker of several goes on in the debt that it knows of in Redis, also where that and what the others may have
// reserved are more than it could have reserved itself.
func TestLocalBucketsBeginInTheDebtOfRedis(t *testing.T) {
	o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.Workers, c.InFlight = true, 2, 200 })
	var last time.Duration
	for _, class := range []gmailquota.Class{gmailquota.Realtime, gmailquota.Maintenance} { // which is below its share then
		for denied := false; !denied; {
			gr, err := o.guard.Acquire(context.Background(), gmailquota.Request{Account: "a", Method: "watch", Class: class})
			if denied = err != nil; !denied {
				last = gr.Wait()
			}
		}
	}
	o.proxy.Fail("LOADING")
	_, err := o.guard.Acquire(context.Background(), immediate("a"))
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) || denied.Wait < last {
		t.Errorf("%v; in Redis a call is reserved in %v", err, last)
	}
}

// A user that was served locally and never asks again is forgotten when there is nothing to tell Redis any more.
func TestLocalUsersAreForgotten(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprint("fallback ", fallback), func(t *testing.T) {
			o := newOutage(t, func(c *gmailquota.Config) { c.FailOpen, c.LocalFallback = true, fallback })
			o.guard.Opened(time.Hour)
			for i := range 500 {
				mustAdmit(t, o.guard, fmt.Sprint("user-", i))
			}
			_ = o.guard.Penalize(context.Background(), "paused", gmailquota.Refusal{Until: o.clock.Now().Add(time.Hour)})
			o.guard.Opened(0)
			if n := o.guard.LocalUsers(); n != 501 {
				t.Fatalf("%d users; want those of this outage", n)
			}
			for range 2 {
				o.advance(2 * time.Minute)
				mustAdmit(t, o.guard, "another")
			}
			if n := o.guard.LocalUsers(); n != 1 {
				t.Errorf("%d users are kept; want the one whose pause Redis was not told of", n)
			}
		})
	}
}

// What Redis could not be told of is reset with it.
func TestAResetEndsWhatRedisWasNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		scope   gmailquota.Scope
		account string
	}{"of a user": {gmailquota.ScopeUser, "a"}, "of the project": {gmailquota.ScopeProject, ""}} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			o.proxy.Fail("LOADING")
			_ = o.guard.Penalize(context.Background(), "a", gmailquota.Refusal{Scope: c.scope, Until: noon.Add(time.Hour)})
			o.proxy.Pass()
			o.advance(3 * time.Second)
			if err := o.guard.Reset(t.Context(), c.account); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				o.advance(40 * time.Second)
				mustAdmit(t, o.guard, "a").Release()
			}
		})
	}
}

// Redis is not asked for the end of each lone call: it rides on the account's next decision, or lapses. Where so many are
// under way that others may want the slots it is told within a second.
func TestEndsAreToldAloneOnlyWhereSlotsAreScarce(t *testing.T) {
	for calls, told := range map[int]bool{2: false, 3: true} { // of 10
		o := newOutage(t)
		ctx := context.Background()
		var grants []*gmailquota.Grant
		for range calls {
			gr, err := o.guard.Acquire(ctx, gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime})
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, gr)
		}
		before := o.guard.Stats().RedisCalls
		for _, gr := range grants {
			gr.Release()
		}
		if err := o.guard.FlushUrgent(ctx); err != nil {
			t.Fatal(err)
		}
		if runs := o.guard.Stats().RedisCalls - before; told != (runs == 1) {
			t.Errorf("%d calls: %d runs for their ends", calls, runs)
		}
		mustAdmit(t, o.guard, "a")
		if s, err := o.guard.Snapshot(ctx, "a"); err != nil || s.InFlight != 1 {
			t.Errorf("%d calls under way after the next decision (%v); want its own", s.InFlight, err)
		}
		if n := o.guard.Waiting(); n != 0 {
			t.Errorf("%d accounts' ends are still to be told", n)
		}
	}
}
