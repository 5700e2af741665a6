package tokens

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gmailsync/gmailsync/consumers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store; fail makes the next saves fail.
type memory struct {
	mu     sync.Mutex
	tokens map[string]consumers.Sealed
	fail   int
	saves  int
}

func (m *memory) Token(_ context.Context, account string) (consumers.Sealed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[account]
	if !ok {
		return t, consumers.ErrNoAccount
	}
	return t, nil
}

func (m *memory) SaveToken(_ context.Context, account string, t consumers.Sealed) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail > 0 {
		m.fail--
		return false, errors.New("disk full")
	}
	if m.tokens[account].Version != t.Version {
		return false, nil
	}
	t.Version++
	m.tokens[account] = t
	m.saves++
	return true, nil
}

// endpoint is a token endpoint without a socket, so that the tests run on virtual time.
type endpoint struct {
	mu    sync.Mutex
	calls []url.Values
	reply func(n int, form url.Values) (status int, body string)
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(data))
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.calls = append(e.calls, form)
	n := len(e.calls)
	e.mu.Unlock()
	status, body := e.reply(n, form)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

// always answers each request alike.
func always(status int, body string) *endpoint {
	return &endpoint{reply: func(int, url.Values) (int, string) { return status, body }}
}

// setup returns a source for account "acc" whose stored refresh token is "r1".
func setup(t *testing.T, e *endpoint) (*Source, *memory) {
	t.Helper()
	cipher, err := OpenCipher(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	store := &memory{tokens: map[string]consumers.Sealed{}}
	s := source(e, store, cipher)
	put(t, s, store, Grant{Refresh: "r1"})
	return s, store
}

func source(e *endpoint, store Store, cipher *Cipher) *Source {
	return New(Config{
		TokenURL: "https://token.example/token", ClientID: "id", ClientSecret: "secret",
		Store: store, Cipher: cipher, Log: zap.NewNop(), HTTP: &http.Client{Transport: e},
	})
}

func put(t *testing.T, s *Source, store *memory, g Grant) {
	t.Helper()
	sealed, err := s.Seal("acc", g)
	if err != nil {
		t.Fatal(err)
	}
	sealed.Version = store.tokens["acc"].Version + 1
	store.tokens["acc"] = sealed
}

func stored(t *testing.T, s *Source, store *memory) (refresh, access string) {
	t.Helper()
	refresh, access, err := s.unseal("acc", store.tokens["acc"])
	if err != nil {
		t.Fatal(err)
	}
	return refresh, access
}

func token(t *testing.T, s *Source) string {
	t.Helper()
	access, err := s.Token(t.Context(), "acc")
	if err != nil {
		t.Fatal(err)
	}
	return access
}

func TestATokenIsRefreshedOnceAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(n int, _ url.Values) (int, string) {
			return 200, fmt.Sprintf(`{"access_token":"a%d","expires_in":3600}`, n)
		}}
		s, _ := setup(t, e)
		for range 3 {
			if got := token(t, s); got != "a1" {
				t.Fatalf("got %s, want a1", got)
			}
		}
		f := e.calls[0]
		if f.Get("refresh_token") != "r1" || f.Get("client_id") != "id" || f.Get("client_secret") != "secret" {
			t.Error("the request lacks the refresh token or the client")
		}
		time.Sleep(time.Hour - margin + time.Second)
		if got := token(t, s); got != "a2" {
			t.Errorf("got %s a minute before the end, want a new one", got)
		}
		if n := e.count(); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

func TestARestartUsesTheStoredToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := always(200, `{"access_token":"a1","expires_in":3600}`)
		s, store := setup(t, e)
		token(t, s)
		if got := token(t, source(e, store, s.cfg.Cipher)); got != "a1" || e.count() != 1 {
			t.Errorf("got %s after %d requests", got, e.count())
		}
	})
}

// O01: trycompai/comp#3143, valon-technologies/gestalt#354: 20 goroutines in two processes find the token expired, the
// endpoint takes 300 ms and refuses overlapping refreshes.
func TestOverlappingRefreshesDisconnectNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var busy bool
		e := &endpoint{}
		e.reply = func(n int, _ url.Values) (int, string) {
			mu.Lock()
			overlaps := busy
			busy = true
			mu.Unlock()
			if overlaps {
				return 400, `{"error":"invalid_grant"}`
			}
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			busy = false
			mu.Unlock()
			return 200, fmt.Sprintf(`{"access_token":"a%d","expires_in":3600}`, n)
		}
		one, store := setup(t, e)
		two := source(e, store, one.cfg.Cipher)
		var wg sync.WaitGroup
		got := make([]string, 20)
		for i := range got {
			wg.Go(func() {
				access, err := []*Source{one, two}[i%2].Token(t.Context(), "acc")
				if err != nil {
					t.Errorf("a healthy account failed: %v", err)
				}
				got[i] = access
			})
		}
		wg.Wait()
		for _, g := range got {
			if g != got[0] {
				t.Errorf("different tokens: %s and %s", g, got[0])
			}
		}
		if e.count() != 2 || store.saves != 1 {
			t.Errorf("%d requests and %d saves, want 2 and 1", e.count(), store.saves)
		}
	})
}

// O01: the loser of a race takes the winner's token.
func TestTheLoserOfARaceTakesTheStoredToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		s, store := setup(t, e)
		e.reply = func(int, url.Values) (int, string) {
			put(t, s, store, Grant{Refresh: "r2", Access: "winner", Expires: time.Now().Add(time.Hour)})
			return 200, `{"access_token":"loser","expires_in":3600}`
		}
		if got := token(t, s); got != "winner" {
			t.Errorf("got %s, want the winner's", got)
		}
	})
}

// O01: invalid_grant counts only if the refresh token is still the stored one. P04: openclaw/gogcli#930.
func TestInvalidGrantMeansReauthOnlyForTheStoredToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := always(400, `{"error":"invalid_grant","error_description":"Token has been revoked for ann@example.com"}`)
		s, store := setup(t, e)
		_, err := s.Token(t.Context(), "acc")
		var me *consumers.MailboxError
		if !errors.As(err, &me) || me.Fault != consumers.AccountFault || me.State != consumers.Reauth || me.Reason != "invalid_grant" {
			t.Fatalf("got %v, want an account fault", err)
		}
		if strings.Contains(err.Error(), "ann@") {
			t.Error("the error holds the endpoint's text")
		}
		e.reply = func(_ int, form url.Values) (int, string) {
			if form.Get("refresh_token") == "r1" {
				put(t, s, store, Grant{Refresh: "reconnected"})
				return 400, `{"error":"invalid_grant"}`
			}
			return 200, `{"access_token":"a2","expires_in":3600}`
		}
		if got := token(t, s); got != "a2" {
			t.Errorf("got %s after reconnecting", got)
		}
	})
}

// P04: twentyhq/twenty#18159: faults of the endpoint or of the client disconnect no user.
func TestFaultsOfTheEndpointArePassing(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{
		{500, `{"error":"internal_failure"}`}, {503, ``}, {502, `<html>invalid_grant</html>`}, {500, `{"error":"invalid_grant"}`},
		{401, `{"error":"invalid_client"}`}, {400, `{"error":"invalid_request"}`}, {400, `{"error":"unauthorized_client"}`},
		{429, `{"error":"rate_limited"}`}, {200, `{}`}, {200, `{"access_token":`},
	} {
		s, _ := setup(t, always(tt.status, tt.body))
		_, err := s.Token(t.Context(), "acc")
		var me *consumers.MailboxError
		if !errors.As(err, &me) || me.Fault != consumers.Passing {
			t.Errorf("%d %s: got %v, want a passing fault", tt.status, tt.body, err)
		}
	}
}

// Errors go to logs and to the store: only what looks like an error code is repeated.
func TestErrorsOfTheEndpointAreNotRepeatedUnread(t *testing.T) {
	for code, want := range map[string]string{
		"invalid_client": "invalid_client", "": "no reason given", "no account ann@example.com": "no reason given",
		strings.Repeat("x", 65): "no reason given", `a\nb`: "no reason given",
	} {
		s, _ := setup(t, always(400, `{"error":"`+code+`","error_description":"of ann@example.com"}`))
		_, err := s.Exchange(t.Context(), "r9")
		var me *consumers.MailboxError
		if !errors.As(err, &me) || me.Reason != want || strings.Contains(err.Error(), "example") {
			t.Errorf("%q: %v; want reason %q", code, err, want)
		}
	}
}

// O02: openclaw/gogcli#373, golang/oauth2#84.
func TestTheRefreshTokenIsNeverOverwrittenWithNothing(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"none in the answer", `{"access_token":"a1","expires_in":3600}`, "r1"},
		{"an empty one", `{"access_token":"a1","expires_in":3600,"refresh_token":""}`, "r1"},
		{"a new one", `{"access_token":"a1","expires_in":3600,"refresh_token":"r2"}`, "r2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, store := setup(t, always(200, tt.body))
			token(t, s)
			if refresh, access := stored(t, s, store); refresh != tt.want || access != "a1" {
				t.Errorf("stored %s and %s, want %s and a1", refresh, access, tt.want)
			}
		})
	}
}

// O02: an answer without expires_in is short-lived, not eternal.
func TestATokenWithoutALifetimeIsShortLived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := always(200, `{"access_token":"a1"}`)
		s, _ := setup(t, e)
		token(t, s)
		token(t, s)
		if e.count() != 1 {
			t.Errorf("%d requests within a moment, want 1", e.count())
		}
		time.Sleep(shortLife)
		token(t, s)
		if e.count() != 2 {
			t.Errorf("%d requests after %v, want 2", e.count(), shortLife)
		}
	})
}

// O02: a failed save is tried again and visible, and the new refresh token is not lost with it.
func TestAFailedSaveIsRetriedBeforeTheTokenIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(n int, _ url.Values) (int, string) {
			return 200, fmt.Sprintf(`{"access_token":"a%d","expires_in":3600,"refresh_token":"r%d"}`, n, n+1)
		}}
		s, store := setup(t, e)
		core, logs := observer.New(zap.ErrorLevel)
		s.cfg.Log = zap.New(core)
		store.fail = saveTries
		if _, err := s.Token(t.Context(), "acc"); consumers.FaultOf(err) != consumers.Passing || err == nil {
			t.Fatalf("got %v, want a passing fault", err)
		}
		if logs.Len() != 1 {
			t.Errorf("%d log lines, want 1", logs.Len())
		}
		store.fail = 1
		if got := token(t, s); got != "a1" || e.count() != 1 {
			t.Errorf("got %s after %d requests, want the token that could not be saved", got, e.count())
		}
		if refresh, _ := stored(t, s, store); refresh != "r2" {
			t.Errorf("stored %s, want r2", refresh)
		}
	})
}

func TestARejectedTokenIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(n int, _ url.Values) (int, string) {
			return 200, fmt.Sprintf(`{"access_token":"a%d","expires_in":3600}`, n)
		}}
		s, store := setup(t, e)
		s.Reject("acc", token(t, s))
		if got := token(t, s); got != "a2" {
			t.Errorf("got %s, want a new token", got)
		}
		s.Reject("acc", "a1") // late, of a call that began before
		if got := token(t, s); got != "a2" || e.count() != 2 {
			t.Errorf("got %s after %d requests", got, e.count())
		}
		if _, access := stored(t, s, store); access != "a2" {
			t.Errorf("stored %s", access)
		}
	})
}

func TestACallerThatGivesUpDoesNotEndTheRefreshForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, url.Values) (int, string) {
			time.Sleep(2 * time.Second)
			return 200, `{"access_token":"a1","expires_in":3600}`
		}}
		s, _ := setup(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			if _, err := s.Token(ctx, "acc"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the caller's deadline", err)
			}
		}()
		synctest.Wait()
		if got := token(t, s); got != "a1" || e.count() != 1 {
			t.Errorf("got %s after %d requests", got, e.count())
		}
	})
}

func TestAnAccountWithoutTokensIsNamedSo(t *testing.T) {
	s, _ := setup(t, always(200, `{}`))
	if _, err := s.Token(t.Context(), "other"); !errors.Is(err, consumers.ErrNoAccount) {
		t.Errorf("got %v", err)
	}
}

func TestExchangeReadsTheSubject(t *testing.T) {
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"1234567890","email":"ann@example.com"}`))
	for _, tt := range []struct{ name, body, sub string }{
		{"with an ID token", `{"access_token":"a","id_token":"x.` + claims + `.y","scope":"s1 s2"}`, "1234567890"},
		{"without", `{"access_token":"a"}`, ""},
		{"a broken one", `{"access_token":"a","id_token":"x.!.y"}`, ""},
		{"no JWT", `{"access_token":"a","id_token":"x"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := setup(t, always(200, tt.body))
			g, err := s.Exchange(t.Context(), "r9")
			if err != nil || g.Sub != tt.sub || g.Refresh != "r9" || g.Access != "a" || g.Expires.IsZero() {
				t.Errorf("got %+v, %v", g, err)
			}
			if strings.Contains(tt.body, "scope") != (len(g.Scopes) == 2) {
				t.Errorf("scopes %v", g.Scopes)
			}
		})
	}
}
