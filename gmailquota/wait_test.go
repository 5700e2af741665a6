package gmailquota_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// away is a Redis that is not there.
type away struct{}

func (away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (away) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(errors.New("away"))
		return cmd.Err()
	}
}

// inABubble runs a test of Guard.Wait on synctest's time. There Redis is away, without a socket, and the local buckets
// decide: Wait is the same on both. The bucket of 100 units is full.
func inABubble(t *testing.T, test func(t *testing.T, g *gmailquota.Guard)) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		rdb.AddHook(away{})
		defer func() { _ = rdb.Close() }()
		g, err := gmailquota.New(rdb, testConfig(func(c *gmailquota.Config) { c.FailOpen = true }))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = g.Acquire(t.Context(), immediate("a")) // makes the buckets, which start empty
		time.Sleep(2 * time.Second)
		test(t, g)
	})
}

func waitFor(g *gmailquota.Guard, method string, c gmailquota.Class, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	gr, err := g.Wait(context.Background(), gmailquota.Request{Account: "a", Method: method, Class: c}, limit)
	if err == nil {
		gr.Release()
	}
	return time.Since(began), err
}

// 100 units take 1.020409 s to refill, at 5,880 a minute.
const hundred = 1_020_409 * time.Microsecond

func TestWaitSleepsUntilTheCallMayBeMade(t *testing.T) {
	for _, class := range []gmailquota.Class{gmailquota.Realtime, gmailquota.Backfill} {
		t.Run(class.String(), func(t *testing.T) {
			inABubble(t, func(t *testing.T, g *gmailquota.Guard) {
				for _, want := range []time.Duration{0, hundred} {
					if slept, err := waitFor(g, "watch", class, hundred); err != nil || slept != want {
						t.Errorf("slept %v, %v; want %v", slept, err, want)
					}
				}
			})
		})
	}
}

// A wait that will not fit is refused before any sleep, also when it is sleep and reservation together that do not fit.
func TestWaitFailsAtOnceWhenItWouldTakeLonger(t *testing.T) {
	for _, class := range []gmailquota.Class{gmailquota.Realtime, gmailquota.Backfill} {
		for _, limit := range []time.Duration{0, time.Microsecond, hundred / 2, hundred - time.Microsecond} {
			t.Run(class.String()+" "+limit.String(), func(t *testing.T) {
				inABubble(t, func(t *testing.T, g *gmailquota.Guard) {
					if _, err := waitFor(g, "watch", class, limit); err != nil {
						t.Fatal(err)
					}
					slept, err := waitFor(g, "watch", class, limit)
					var denied *gmailquota.DeniedError
					if !errors.As(err, &denied) || slept != 0 {
						t.Errorf("%v after %v; want a denial at once", err, slept)
					}
					if s := g.Stats(); s.Admitted != 1 {
						t.Errorf("%d were admitted; want 1", s.Admitted)
					}
				})
			})
		}
	}
}

// A call that waits for others to end asks again until one has.
func TestWaitWaitsForACallToEnd(t *testing.T) {
	inABubble(t, func(t *testing.T, g *gmailquota.Guard) {
		var grants []*gmailquota.Grant
		for range 10 {
			gr, err := g.Acquire(t.Context(), gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime})
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, gr)
		}
		time.AfterFunc(1100*time.Millisecond, grants[3].Release)
		if slept, err := waitFor(g, "getProfile", gmailquota.Realtime, 5*time.Second); err != nil || slept != 1250*time.Millisecond {
			t.Errorf("slept %v, %v; want the fifth quarter of a second", slept, err)
		}
	})
}

func TestWaitRefundsWhenItsContextEndsInTheSleep(t *testing.T) {
	inABubble(t, func(t *testing.T, g *gmailquota.Guard) {
		if _, err := waitFor(g, "watch", gmailquota.Realtime, time.Second); err != nil {
			t.Fatal(err)
		}
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
		_, err := g.Wait(ctx, gmailquota.Request{Account: "a", Method: "watch", Class: gmailquota.Realtime}, time.Minute)
		if !errors.Is(err, why) {
			t.Fatalf("%v; want the context's cause", err)
		}
		if s := g.Stats(); s.Units != 100 {
			t.Errorf("%d units are charged; want the 100 of the first call", s.Units)
		}
		if slept, err := waitFor(g, "watch", gmailquota.Realtime, 2*time.Second); err != nil || slept > hundred {
			t.Errorf("the next call slept %v, %v: the reservation was not given back", slept, err)
		}
	})
}
