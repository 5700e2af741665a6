package quotahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/option"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
)

// Google's own client, guarded.
func ExampleTransport_googleClient() {
	gmailServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"emailAddress":"ann@example.com","historyId":"1710"}`)
	}))
	defer gmailServer.Close()
	redisServer := miniredis.NewMiniRedis() // yours is a real one
	if err := redisServer.Start(); err != nil {
		panic(err)
	}
	defer redisServer.Close()

	options, err := gmailquota.RedisOptions("redis://"+redisServer.Addr(), time.Second)
	if err != nil {
		panic(err)
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		panic(err)
	}
	// Base is what adds the access token: an *oauth2.Transport.
	client := &http.Client{Transport: &quotahttp.Transport{Guard: guard, Base: gmailServer.Client().Transport, MaxWait: 3 * time.Second}}
	// The endpoint is for this example.
	service, err := gmail.NewService(context.Background(), option.WithHTTPClient(client), option.WithEndpoint(gmailServer.URL))
	if err != nil {
		panic(err)
	}

	ctx := gmailquota.WithCall(context.Background(), "8f1c", gmailquota.Realtime) // a stable id, not an address
	profile, err := service.Users.GetProfile("me").Context(ctx).Do()
	if err != nil {
		panic(err)
	}
	fmt.Println("history id", profile.HistoryId, "for", guard.Stats().Units, "unit")

	_, err = service.Users.GetProfile("me").Do()
	fmt.Println(errors.Is(err, gmailquota.ErrNoAccount), "- not sent, since nobody would be charged")
	// Output:
	// history id 1710 for 1 unit
	// true - not sent, since nobody would be charged
}

// Any HTTP client of Gmail, guarded.
func ExampleTransport() {
	gmailServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"historyId":"1710"}`)
	}))
	defer gmailServer.Close()
	redisServer := miniredis.NewMiniRedis() // yours is a real one
	if err := redisServer.Start(); err != nil {
		panic(err)
	}
	defer redisServer.Close()

	options, err := gmailquota.RedisOptions("redis://"+redisServer.Addr(), time.Second)
	if err != nil {
		panic(err)
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &quotahttp.Transport{Guard: guard, Base: gmailServer.Client().Transport, MaxWait: 30 * time.Second}}

	ctx := gmailquota.WithCall(context.Background(), "8f1c", gmailquota.Realtime)
	for _, path := range []string{"/gmail/v1/users/me/history?startHistoryId=1700", "/gmail/v1/users/me/secrets"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, gmailServer.URL+path, nil)
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		var denied *gmailquota.DeniedError
		var unknown *quotahttp.UnknownError
		switch {
		case errors.As(err, &denied): // nothing was sent: come back after denied.Wait
		case errors.As(err, &unknown):
			fmt.Println(unknown)
		case err != nil:
			panic(err)
		default:
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close() // the call has ended
			fmt.Println(resp.Status, guard.Stats().Units, "units")
		}
	}
	// Output:
	// 200 OK 2 units
	// quotahttp: GET /gmail/v1/users/me/secrets is no known Gmail method, so it has no price and was not sent
}
