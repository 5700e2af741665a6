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

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
)

// With Google's client the http.Client goes into gmail.NewService(ctx, option.WithHTTPClient(client)), and Base is an
// oauth2.Transport.
func ExampleTransport() {
	gmail := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"historyId":"1710"}`)
	}))
	defer gmail.Close()
	server := miniredis.NewMiniRedis() // yours is a real one
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()

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
	client := &http.Client{Transport: &quotahttp.Transport{Guard: guard, Base: gmail.Client().Transport, MaxWait: 30 * time.Second}}

	ctx := gmailquota.WithCall(context.Background(), "8f1c", gmailquota.Realtime)
	for _, path := range []string{"/gmail/v1/users/me/history?startHistoryId=1700", "/gmail/v1/users/me/secrets"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, gmail.URL+path, nil)
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
