package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// Redis loses something while many ask, in real time: what was granted is bounded by what has refilled meanwhile.

// traffic is 16 callers of several workers that ask for what there is at once.
type traffic struct {
	*testing.T
	workers                     []*gmailquota.Guard
	units                       []atomic.Int64 // by user
	calls                       []atomic.Int64 // by user
	grants, denied, unavailable atomic.Int64
	asked                       atomic.Int64 // all of them
	end                         chan struct{}
	wg                          sync.WaitGroup
	began                       time.Time
	lasted                      time.Duration
}

func startTraffic(t *testing.T, workers []*gmailquota.Guard, users int) *traffic {
	tr := &traffic{
		T: t, workers: workers, units: make([]atomic.Int64, users), calls: make([]atomic.Int64, users),
		end: make(chan struct{}), began: time.Now(),
	}
	for i := range 16 {
		tr.wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-tr.end:
					return
				default:
					tr.ask(workers[i%len(workers)], n%users)
				}
			}
		})
	}
	t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) ask(g *gmailquota.Guard, user int) {
	gr, err := g.Acquire(context.Background(), gmailquota.Request{Account: fmt.Sprint(user), Method: "history.list", MaxWait: -1})
	var denied *gmailquota.DeniedError
	var away *gmailquota.UnavailableError
	tr.asked.Add(1)
	switch {
	case err == nil:
		tr.units[user].Add(gr.Units())
		tr.calls[user].Add(1)
		tr.grants.Add(1)
		gr.Release()
	case errors.As(err, &denied):
		tr.denied.Add(1)
		time.Sleep(time.Millisecond) // a machine with two cores has others to run
	case errors.As(err, &away):
		tr.unavailable.Add(1)
		time.Sleep(time.Millisecond)
	default:
		tr.Errorf("%v", err)
	}
}

// goesOn waits for n further answers of the guards, whatever they say.
func (tr *traffic) goesOn(n int64) { tr.reach(&tr.asked, n) }

// served waits until a user was granted something more.
func (tr *traffic) served(user int) { tr.reach(&tr.calls[user], 1) }

func (tr *traffic) reach(count *atomic.Int64, n int64) {
	tr.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start := count.Load()
	for end := time.Now().Add(time.Minute); count.Load() < start+n; <-tick.C {
		if time.Now().After(end) {
			tr.Fatalf("not served in a minute: %d grants so far, %d denied, %d unavailable", tr.grants.Load(), tr.denied.Load(), tr.unavailable.Load())
		}
	}
}

func (tr *traffic) stop() {
	select {
	case <-tr.end:
	default:
		close(tr.end)
		tr.wg.Wait()
		tr.lasted = time.Since(tr.began)
	}
}

// check compares what was granted with what the buckets, which start empty, have refilled; extra is what a user may have
// got beyond.
func (tr *traffic) check(extra int64) {
	tr.Helper()
	const userLimit, projectLimit = 6000, 30_000
	most := func(limit int64) int64 { return limit * tr.lasted.Microseconds() / 60_000_000 }
	var all int64
	for user := range tr.units {
		n := tr.units[user].Load()
		all += n
		if n > most(userLimit)+extra {
			tr.Errorf("user %d: %d units in %v; want at most %d", user, n, tr.lasted, most(userLimit)+extra)
		}
	}
	if all > most(projectLimit)+extra*int64(len(tr.units)) {
		tr.Errorf("%d units in %v; want at most %d", all, tr.lasted, most(projectLimit)+extra*int64(len(tr.units)))
	}
}

// twoWorkers share a Redis at addr.
func twoWorkers(t *testing.T, addr string) []*gmailquota.Guard {
	t.Helper()
	change := func(c *gmailquota.Config) { c.UserLimit, c.ProjectLimit, c.InFlight, c.Workers = 6000, 30_000, 1000, 2 }
	return []*gmailquota.Guard{realGuard(t, addr, change), realGuard(t, addr, change)}
}

// A script that Redis has forgotten is sent again, whatever was asked; no call notices.
// PostHog/posthog#60838
func TestAForgottenScriptIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	server := quotatest.StartServer(t)
	workers := twoWorkers(t, server.Addr)
	traffic := startTraffic(t, workers, 4)
	for range 50 {
		server.Do("SCRIPT", "FLUSH")
		traffic.goesOn(16)
	}
	traffic.stop()
	traffic.check(0)
	if n := traffic.unavailable.Load(); n != 0 {
		t.Errorf("%d decisions were not made", n)
	}
	g, ctx := workers[0], context.Background()
	for name, ask := range map[string]func() error{
		"release":  func() error { return g.Close(ctx) },
		"penalize": func() error { return g.Penalize(ctx, "a", gmailquota.Refusal{Until: time.Now().Add(time.Hour)}) },
	} {
		mustAdmit(t, g, "of "+name).Release()
		server.Do("SCRIPT", "FLUSH")
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := g.Snapshot(ctx, "of release"); err != nil || s.InFlight != 0 {
		t.Errorf("%d calls under way, %v; want the release to have arrived", s.InFlight, err)
	}
	gr := mustAdmit(t, g, "b")
	server.Do("SCRIPT", "FLUSH")
	gr.Refund(ctx)
	if s, err := g.Snapshot(ctx, "b"); err != nil || s.InFlight != 0 {
		t.Errorf("%d calls under way, %v; want the refund to have arrived", s.InFlight, err)
	}
}

// spring-cloud/spring-cloud-gateway#2412
func TestFlushedDataGrantsNothing(t *testing.T) {
	t.Parallel()
	server := quotatest.StartServer(t)
	traffic := startTraffic(t, twoWorkers(t, server.Addr), 4)
	for range 20 {
		traffic.goesOn(200)
		server.Do("FLUSHALL")
	}
	traffic.served(0)
	traffic.stop()
	traffic.check(0)
}

// A Redis with too little memory throws the guard's keys out, one or the other.
// getsentry/sentry#122038, redis/redis#15093
func TestEvictedKeysGrantNothing(t *testing.T) {
	t.Parallel()
	server := quotatest.StartServer(t, "--maxmemory-policy", "allkeys-random")
	rdb := quotatest.Client(t, server.Addr)
	ctx := context.Background()
	workers := twoWorkers(t, server.Addr)
	traffic := startTraffic(t, workers, 4)
	_, projectKey := workers[0].Keys("")
	used, _ := strconv.ParseInt(infoOf(t, rdb, "used_memory"), 10, 64)
	server.Do("CONFIG", "SET", "maxmemory", used+1<<20)
	lost := 0
	for i, end := 0, time.Now().Add(time.Minute); lost < 3; i++ {
		if time.Now().After(end) {
			t.Fatal("the guard's keys are not evicted; this test proves nothing")
		}
		if err := rdb.Set(ctx, fmt.Sprint("junk-", i), strings.Repeat("x", 16<<10), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := rdb.Exists(ctx, projectKey).Result(); err == nil && n == 0 {
			lost++
			traffic.goesOn(200)
		}
	}
	traffic.stop()
	traffic.check(0)
	t.Logf("%s keys evicted, the project's at least %d times; %d grants", infoOf(t, rdb, "evicted_keys"), lost, traffic.grants.Load())
}

func infoOf(t *testing.T, rdb redis.UniversalClient, field string) string {
	t.Helper()
	info, err := rdb.Info(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "\n"+field+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// A replica that is promoted without the last writes has a fuller bucket than there was: a burst more, at most.
func TestAFailoverGrantsABurstAtMost(t *testing.T) {
	t.Parallel()
	master, replica := quotatest.StartServer(t, "--repl-diskless-sync-delay", "0"), quotatest.StartServer(t)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	proxy := quotatest.NewProxy(t, master.Addr)
	workers := twoWorkers(t, proxy.Addr)
	traffic := startTraffic(t, workers, 4)
	rdb := quotatest.Client(t, replica.Addr)
	eventually(t, "the replica is up", func() bool { return infoOf(t, rdb, "master_link_status") == "up" })
	for user := range 4 {
		traffic.served(user)
	}
	replica.Do("REPLICAOF", "NO", "ONE") // from here on it misses what the master writes
	for range 20 {
		for user := range 4 {
			traffic.served(user)
		}
	}
	proxy.Retarget(replica.Addr)
	master.Kill()
	for range 20 {
		for user := range 4 {
			traffic.served(user)
		}
	}
	traffic.stop()
	traffic.check(100)
}
