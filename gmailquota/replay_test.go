package gmailquota_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// replays is a guard whose client has go-redis' defaults: what is not answered in time is sent again. By default the
// time is 5 s.
func replays(t *testing.T, timeout time.Duration) (*outage, *gmailquota.Guard) {
	t.Helper()
	o := newOutage(t)
	rdb := redis.NewClient(&redis.Options{Addr: o.proxy.Addr, ReadTimeout: timeout})
	t.Cleanup(func() { _ = rdb.Close() })
	// With the guard's own timeout the client would have no time to repeat.
	g, err := gmailquota.New(rdb, testConfig(func(c *gmailquota.Config) { c.RedisTimeout = time.Minute }), gmailquota.WithClock(o.clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, g, "warm").Release()
	if err := g.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return o, g
}

// Redis does what it is asked, and its answer comes when the client has stopped waiting and asks again: it is done once.
func TestWhatTheClientRepeatsIsDoneOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	batch := gmailquota.Request{Account: "a", Method: "messages.get", Class: gmailquota.Realtime, Calls: 3} // 60 units
	for name, c := range map[string]struct {
		timeout  time.Duration
		before   func(t *testing.T, g *gmailquota.Guard) *gmailquota.Grant
		repeated func(t *testing.T, g *gmailquota.Guard, gr *gmailquota.Grant)
		tokens   int64 // of 100
		inFlight int
		penalty  time.Duration
	}{
		"a charge, with the client's own timeout": {
			repeated: func(t *testing.T, g *gmailquota.Guard, _ *gmailquota.Grant) { mustAdmit(t, g, "a") },
			tokens:   60, inFlight: 1,
		},
		"a charge": {
			timeout:  deaf,
			repeated: func(t *testing.T, g *gmailquota.Guard, _ *gmailquota.Grant) { mustAdmit(t, g, "a") },
			tokens:   60, inFlight: 1,
		},
		"a batch's charge": {
			timeout: deaf,
			repeated: func(t *testing.T, g *gmailquota.Guard, _ *gmailquota.Grant) {
				if _, err := g.Acquire(ctx, batch); err != nil {
					t.Fatal(err)
				}
			},
			tokens: 40, inFlight: 3,
		},
		"a refund": {
			timeout: deaf,
			before: func(t *testing.T, g *gmailquota.Guard) *gmailquota.Grant {
				mustAdmit(t, g, "a")
				return mustAdmit(t, g, "a")
			},
			repeated: func(_ *testing.T, _ *gmailquota.Guard, gr *gmailquota.Grant) { gr.Refund(ctx) },
			tokens:   60, inFlight: 1,
		},
		"a release": {
			timeout: deaf,
			before: func(t *testing.T, g *gmailquota.Guard) *gmailquota.Grant {
				mustAdmit(t, g, "a")
				return mustAdmit(t, g, "a")
			},
			repeated: func(t *testing.T, g *gmailquota.Guard, gr *gmailquota.Grant) {
				gr.Release()
				if err := g.Close(ctx); err != nil {
					t.Fatal(err)
				}
			},
			tokens: 20, inFlight: 1,
		},
		"a refusal": {
			timeout: deaf,
			repeated: func(t *testing.T, g *gmailquota.Guard, _ *gmailquota.Grant) {
				if err := g.Penalize(ctx, "a", gmailquota.Refusal{}); err != nil {
					t.Fatal(err)
				}
			},
			tokens: 0, penalty: time.Second, // a second strike would make it 2 s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, g := replays(t, c.timeout)
			var gr *gmailquota.Grant
			if c.before != nil {
				gr = c.before(t, g)
			}
			sent := o.proxy.Commands()
			o.proxy.LoseOne()
			c.repeated(t, g, gr)
			if n := o.proxy.Commands() - sent; n != 2 {
				t.Fatalf("the client sent the script %d times; this test needs a repetition", n)
			}
			s, err := g.Snapshot(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			if c.penalty == 0 && s.User.Tokens != c.tokens || s.InFlight != c.inFlight || s.User.Penalty != c.penalty {
				t.Errorf("%d of 100 tokens, %d calls under way, a pause of %v; want %d, %d and %v",
					s.User.Tokens, s.InFlight, s.User.Penalty, c.tokens, c.inFlight, c.penalty)
			}
		})
	}
}
