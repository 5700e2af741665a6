package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// A worker with other things to do asks at once, and puts aside what is denied.
func ExampleGuard_Acquire() {
	server := miniredis.NewMiniRedis() // yours is a real one
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	server.SetTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)) // for the output's sake

	options, err := gmailquota.RedisOptions("redis://"+server.Addr(), time.Second)
	if err != nil {
		panic(err)
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	for _, class := range []gmailquota.Class{gmailquota.Realtime, gmailquota.Backfill, gmailquota.Backfill} {
		grant, err := guard.Acquire(ctx, gmailquota.Request{Account: "8f1c", Method: "threads.get", Class: class})
		var denied *gmailquota.DeniedError
		switch {
		case errors.As(err, &denied):
			// A Turn in the context or the request keeps its place in line until then.
			fmt.Printf("%v: come back in %v\n", class, denied.Wait.Round(time.Millisecond))
		case err != nil:
			panic(err)
		default:
			// The buckets begin empty on a new Redis, so even this call is reserved ahead: sleep grant.Wait(), then call.
			fmt.Printf("%v: %d units, to be made in %v\n", class, grant.Units(), grant.Wait().Round(time.Millisecond))
			grant.Release() // when Gmail has answered
		}
	}
	// Output:
	// realtime: 40 units, to be made in 408ms
	// backfill: 40 units, to be made in 816ms
	// backfill: come back in 814ms
}

// A worker that can sleep waits until the call may be made; what would take longer than it can wait fails at once.
func ExampleGuard_Wait() {
	server := miniredis.NewMiniRedis() // yours is a real one
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	server.SetTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)) // for the output's sake

	options, err := gmailquota.RedisOptions("redis://"+server.Addr(), time.Second)
	if err != nil {
		panic(err)
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	for _, method := range []string{"history.list", "threads.get", "messages.sned"} {
		r := gmailquota.Request{Account: "8f1c", Method: method, Class: gmailquota.Realtime}
		grant, err := guard.Wait(ctx, r, 300*time.Millisecond)
		var denied *gmailquota.DeniedError
		var price *gmailquota.PriceError
		switch {
		case errors.As(err, &denied): // try again later; nothing was charged
			fmt.Printf("%s: denied by the %s limit\n", method, denied.Bucket)
		case errors.As(err, &price): // a mistake in the program: trying again is of no use
			fmt.Println(price)
		case err != nil: // Redis is away and FailOpen is off, or ctx has ended
			panic(err)
		default:
			fmt.Printf("%s: call now, %d units are charged\n", method, grant.Units())
			grant.Release() // when Gmail has answered
		}
	}
	// Output:
	// history.list: call now, 2 units are charged
	// threads.get: denied by the user limit
	// gmailquota: messages.sned can never be admitted: it has no price; give it one in Config.Prices
}

// What Gmail answered is told to all workers.
func ExampleParseRefusal() {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	body := `{"error":{"code":403,"message":"User-rate limit exceeded.  Retry after 2026-11-29T12:15:00.000Z",
		"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`

	refusal, ok := gmailquota.ParseRefusal(http.StatusForbidden, http.Header{}, []byte(body), now)
	fmt.Println(ok, refusal.Scope, refusal.Until.Sub(now))
	// Output: true user 15m0s
}

func ExampleConfig_Validate() {
	cfg := gmailquota.DefaultConfig()
	cfg.UserBurst = 40 // threads.get and nothing dearer
	fmt.Println(cfg.Validate())
	// Output: gmailquota: UserBurst = 40: allowed is at least 100 units, the price of drafts.send: a dearer call than the bucket holds could never be made
}
