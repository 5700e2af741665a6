//go:build !race

package quotahttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// admitting gives every call the same grant.
type admitting struct{ grant *gmailquota.Grant }

func (a admitting) Wait(context.Context, gmailquota.Request, time.Duration) (*gmailquota.Grant, error) {
	return a.grant, nil
}

func (a admitting) Price(string) (int64, error) { return 40, nil }

// answering is a network that allocates nothing.
type answering struct{ resp http.Response }

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	a.resp.StatusCode, a.resp.Body = http.StatusOK, http.NoBody
	return &a.resp, nil
}

// allocations is how many a GET through rt makes, its answer's end included.
func allocations(t *testing.T, rt http.RoundTripper) float64 {
	t.Helper()
	ctx := gmailquota.WithCall(t.Context(), "a", gmailquota.Realtime)
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/gmail/v1/users/me/threads/18c2?format=full", http.NoBody)
	return testing.AllocsPerRun(1000, func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	})
}

func TestTheTransportAllocatesLittle(t *testing.T) {
	g, err := gmailquota.New(quotatest.Embedded(t).Client, gmailquota.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	grant, err := g.Acquire(t.Context(), gmailquota.Request{Account: "a", Method: "getProfile", Class: gmailquota.Realtime})
	if err != nil {
		t.Fatal(err)
	}
	base := &answering{}
	bare := allocations(t, base)
	with := allocations(t, &quotahttp.Transport{Guard: admitting{grant}, Base: base})
	t.Logf("the transport makes %v allocations", with-bare)
	if with-bare > 10 {
		t.Errorf("the transport makes %v allocations; want 10 at most", with-bare)
	}
}
