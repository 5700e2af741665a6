package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// Tests on a real Redis in real time. They bound what may not happen, so that a busy machine cannot fail them.

func realGuard(t testing.TB, addr string, change ...func(*gmailquota.Config)) *gmailquota.Guard {
	t.Helper()
	g, err := gmailquota.New(quotatest.Client(t, addr), testConfig(change...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Many callers of two workers get what the buckets hold and refill, and not a unit more.
// zeromicro/go-zero#4072, sourcegraph-public-snapshot#56826
func TestWorkersInARaceGetNoMoreThanTheBucketsHold(t *testing.T) {
	addr := quotatest.StartRedis(t)
	slow := func(c *gmailquota.Config) { c.UserLimit, c.ProjectLimit, c.InFlight = 6000, 9000, 1000 }
	workers := []*gmailquota.Guard{realGuard(t, addr, slow), realGuard(t, addr, slow)}
	rdb := quotatest.Client(t, addr)
	ctx := context.Background()
	began, err := rdb.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	var units [2]atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			user := i / 2 % 2
			for range 300 {
				gr, err := workers[i%2].Acquire(ctx, gmailquota.Request{Account: fmt.Sprint(user), Method: "history.list", MaxWait: -1})
				if err != nil {
					continue
				}
				units[user].Add(gr.Units())
				if i%3 == 0 {
					gr.Release()
				}
			}
		})
	}
	wg.Wait()
	ended, err := rdb.Time(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	most := func(limit int64) int64 { return limit * ended.Sub(began).Microseconds() / 60_000_000 } // both start empty
	a, b := units[0].Load(), units[1].Load()
	if a > most(6000) || b > most(6000) || a+b > most(9000) {
		t.Errorf("%d and %d units in %v", a, b, ended.Sub(began))
	}
	if a+b == 0 {
		t.Error("nothing was admitted")
	}
}

// A worker that was killed holds its calls for 10 s after their admission, and then no longer.
// amd/gaia#2720
func TestTheCallsOfAKilledWorkerLapse(t *testing.T) {
	t.Parallel()
	if addr := os.Getenv("GMAILQUOTA_HOLD"); addr != "" {
		holdCalls(t, addr)
	}
	addr := quotatest.StartRedis(t)
	g, rdb := realGuard(t, addr), quotatest.Client(t, addr)
	ctx := context.Background()
	one := gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime}
	worker := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheCallsOfAKilledWorkerLapse$")
	worker.Env = append(os.Environ(), "GMAILQUOTA_HOLD="+addr)
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := rdb.Time(ctx).Result()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it holds all calls
		t.Fatal(err)
	}
	_ = worker.Process.Kill()
	_ = worker.Wait()
	var denied *gmailquota.DeniedError
	if _, err := g.Acquire(ctx, one); !errors.As(err, &denied) || denied.Bucket != gmailquota.BucketInFlight {
		t.Fatalf("while the killed worker's calls count: %v; want a denial by the in-flight cap", err)
	}
	if _, err := g.Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
	after, _ := rdb.Time(ctx).Result()
	if held := after.Sub(before); held < 10*time.Second {
		t.Errorf("they lapsed after %v", held)
	}
}

// holdCalls is the worker that is killed.
func holdCalls(t *testing.T, addr string) {
	g := realGuard(t, addr)
	for range 10 {
		if _, err := g.Wait(context.Background(), gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = os.Stdout.WriteString(".")
	select {}
}
