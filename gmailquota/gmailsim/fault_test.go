package gmailsim

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFaultsMatchWhatTheyName(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.deliver("a", "a@x"), r.deliver("b", "b@x")
	bob := *r
	bob.token = r.login(r.s.AddAccount("bob@example.com"))
	r.s.AddFault(Fault{Method: "messages.get", ID: a.ID, Status: 404, Times: 2})
	r.s.AddFault(Fault{Method: "labels.list", Account: "Bob@example.com", Status: 500, Times: -1})
	r.s.AddFault(Fault{Method: "getProfile", Call: 3, Times: 2, Status: 503})
	statuses := func(r *rig, path string, n int) string {
		var s []string
		for range n {
			s = append(s, fmt.Sprint(r.do("GET", path, nil).Code))
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct {
		r          *rig
		path, want string
	}{
		{r, "messages/" + b.ID, "200"},
		{r, "threads/" + a.ID, "200"},
		{r, "messages/" + a.ID, "404 404 200"},
		{r, "labels", "200 200"},
		{&bob, "labels", "500 500 500"},
		{r, "profile", "200 200 503 503 200 200"},
	} {
		if got := statuses(c.r, c.path, len(strings.Fields(c.want))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.path, got, c.want)
		}
	}
	r.s.ClearFaults()
	if got := statuses(&bob, "labels", 1); got != "200" {
		t.Errorf("after clearing: %s", got)
	}
	if s := r.s.Stats(); s.Faults != 7 || s.Refused != 0 || s.Calls["messages.get"] != 4 {
		t.Errorf("got %+v", s)
	}
}

// dxos/dxos#12466: not readable for some seconds.
func TestFaultsCanLastForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		m := r.deliver("a", "a@x")
		r.s.AddFault(Fault{ID: m.ID, For: 3 * time.Second, Status: 404})
		for range 3 {
			r.fails(404, "notFound", "GET", "messages/"+m.ID, nil)
			time.Sleep(1100 * time.Millisecond)
		}
		r.ok("GET", "messages/"+m.ID, nil)
	})
}

// GAM-team/got-your-back#309: the refusals that Gmail is known to give.
func TestFaultBodies(t *testing.T) {
	r := newRig(t, Config{})
	for _, c := range []struct {
		fault             Fault
		want, contentType string
	}{
		{
			Fault{Status: 429, Message: "User-rate limit exceeded.  Retry after 2026-11-29T12:00:05.000Z"},
			`{"error":{"code":429,"message":"User-rate limit exceeded.  Retry after 2026-11-29T12:00:05.000Z","errors":[{"message":` +
				`"User-rate limit exceeded.  Retry after 2026-11-29T12:00:05.000Z","domain":"usageLimits","reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}`,
			"application/json; charset=UTF-8",
		},
		{
			Fault{Status: 403, Reason: "insufficientPermissions", Message: "Insufficient Permission"},
			`{"error":{"code":403,"message":"Insufficient Permission","errors":[{"message":"Insufficient Permission","domain":"global",` +
				`"reason":"insufficientPermissions"}],"status":"PERMISSION_DENIED"}}`,
			"application/json; charset=UTF-8",
		},
		{Fault{Status: 403, Body: "<html>no</html>"}, "<html>no</html>", "text/html; charset=UTF-8"},
		{Fault{Status: 200, Body: `{"id":`, Headers: map[string]string{"content-type": "application/json"}}, `{"id":`, "application/json"},
		{Fault{Status: 503, Empty: true, Headers: map[string]string{"Retry-After": "7"}}, "", ""},
	} {
		r.s.AddFault(c.fault)
		w := r.do("GET", "profile", nil)
		if w.Code != c.fault.Status || w.Body.String() != c.want || w.Header().Get("Content-Type") != c.contentType {
			t.Errorf("got %d %s %v", w.Code, w.Body, w.Header())
		}
		if c.fault.Headers["Retry-After"] != w.Header().Get("Retry-After") {
			t.Errorf("header %v", w.Header())
		}
	}
}

func TestFaultsCanDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.s.AddFault(Fault{Delay: time.Minute})
		start := time.Now()
		r.ok("GET", "profile", nil)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// garrytan/gbrain#4959: connections that break before or in the middle of an answer.
func TestFaultsCanBreakTheConnection(t *testing.T) {
	r := newRig(t, Config{})
	server := httptest.NewServer(r.h)
	defer server.Close()
	get := func() (string, error) {
		req := must(http.NewRequest(http.MethodGet, server.URL+"/gmail/v1/users/me/labels", nil))(t)
		req.Header.Set("Authorization", "Bearer "+r.token)
		resp, err := server.Client().Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	want, err := get()
	if err != nil {
		t.Fatal(err)
	}
	r.s.AddFault(Fault{Cut: true})
	if got, err := get(); err == nil || len(got) == len(want) {
		t.Errorf("cut: got %d of %d bytes, %v", len(got), len(want), err)
	}
	r.s.AddFault(Fault{Drop: true, Times: -1})
	if got, err := get(); err == nil {
		t.Errorf("drop: got %s", got)
	}
	r.s.ClearFaults()
	if got, err := get(); err != nil || got != want {
		t.Errorf("afterwards: %v", err)
	}
	if s := r.s.Stats(); s.Accounts[ann].InFlight != 0 {
		t.Errorf("%d calls are still in flight", s.Accounts[ann].InFlight)
	}
}
