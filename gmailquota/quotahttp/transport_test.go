package quotahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a client whose calls a guard admits before a server sees them.
type world struct {
	*testing.T
	redis     quotatest.Redis
	guard     *gmailquota.Guard
	transport *quotahttp.Transport
	client    *http.Client
	url       string
	calls     int
	refusals  []string // the buckets that Gmail's refusals stop
}

// newWorld's bucket is full: 100 units.
func newWorld(t *testing.T, answer http.HandlerFunc) *world {
	t.Helper()
	w := &world{T: t, redis: quotatest.Embedded(t)}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls++
		answer(rw, r)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen, cfg.RedisTimeout = false, 10*time.Second
	g, err := gmailquota.New(w.redis.Client, cfg, gmailquota.WithClock(w.redis.Now), gmailquota.WithObserver(func(e gmailquota.Event) {
		if e.Kind == gmailquota.Refused {
			w.refusals = append(w.refusals, e.Bucket)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	w.guard = g
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	w.transport = &quotahttp.Transport{Guard: g, Base: base, Now: w.redis.Now}
	w.client = &http.Client{Transport: w.transport}
	gr, err := g.Acquire(context.Background(), gmailquota.Request{Account: "first", Method: "getProfile", Class: gmailquota.Realtime})
	if err != nil {
		t.Fatal(err)
	}
	gr.Release()
	w.redis.Advance(61 * time.Second)
	return w
}

func ok(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "{}") }

func (w *world) get(path string) (*http.Response, error) {
	ctx := gmailquota.WithCall(w.Context(), "a", gmailquota.Realtime)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	return w.client.Do(req)
}

// state is what Redis holds for the account once it knows which calls ended.
func (w *world) state() gmailquota.Snapshot {
	w.Helper()
	if err := w.guard.Close(w.Context()); err != nil {
		w.Fatal(err)
	}
	s, err := w.guard.Snapshot(w.Context(), "a")
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) read(path string) {
	w.Helper()
	resp, err := w.get(path)
	if err != nil {
		w.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func TestEveryAttemptIsChargedByItsMethod(t *testing.T) {
	w := newWorld(t, ok)
	w.read("/gmail/v1/users/me/threads/18c?format=full")
	w.read("/gmail/v1/users/me/threads/18c")
	w.read("/gmail/v1/users/a%40example.com/history?startHistoryId=1")
	if s := w.state(); s.User.Tokens != 100-40-40-2 || s.InFlight != 0 {
		t.Errorf("%d tokens left, %d under way; want 18 and 0", s.User.Tokens, s.InFlight)
	}
}

func TestADenialIsAnErrorAndNothingIsSent(t *testing.T) {
	w := newWorld(t, ok)
	w.read("/gmail/v1/users/me/threads/1")
	w.read("/gmail/v1/users/me/threads/2")
	resp, err := w.get("/gmail/v1/users/me/threads/3")
	if err == nil {
		_ = resp.Body.Close()
	}
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) || denied.Method != "threads.get" || denied.Wait <= 0 || w.calls != 2 {
		t.Errorf("%v after %d calls; want a DeniedError after 2", err, w.calls)
	}
}

func TestWhatCannotBePricedIsNotSent(t *testing.T) {
	w := newWorld(t, ok)
	for name, path := range map[string]string{
		"another API":     "/calendar/v3/users/me/events",
		"another version": "/gmail/v2/users/me/threads",
		"no method":       "/gmail/v1/users/me/secrets/ann@example.com",
		"an escaped path": "/gmail/v1/users/me/messages%2Fbatch",
	} {
		resp, err := w.get(path)
		if err == nil {
			_ = resp.Body.Close()
		}
		var unknown *quotahttp.UnknownError
		if !errors.As(err, &unknown) {
			t.Errorf("%s: %v; want an UnknownError", name, err)
		} else if strings.Contains(unknown.Error(), "ann@") {
			t.Errorf("%s: %v names an address", name, unknown)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/gmail/v1/users/me/profile", nil)
	resp, err := w.client.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, gmailquota.ErrNoAccount) {
		t.Errorf("without an account: %v; want ErrNoAccount", err)
	}
	if w.calls > 0 {
		t.Errorf("%d requests were sent", w.calls)
	}
}

func TestACallIsUnderWayUntilItsAnswerIsRead(t *testing.T) {
	w := newWorld(t, ok)
	resp, err := w.get("/gmail/v1/users/me/profile")
	if err != nil {
		t.Fatal(err)
	}
	if n := w.state().InFlight; n != 1 {
		t.Errorf("%d under way before the answer was read; want 1", n)
	}
	_, _ = io.ReadAll(resp.Body)
	if n := w.state().InFlight; n != 0 {
		t.Errorf("%d under way after the answer was read; want 0", n)
	}
	_ = resp.Body.Close()
}

// Gmail's refusal reaches the guard, and the caller as it came.
func TestARefusalIsReportedAndReturned(t *testing.T) {
	const message = `{"error":{"code":403,"message":"User-rate limit exceeded.  Retry after 2026-11-29T12:20:00.000Z","errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw, message)
	})
	resp, err := w.get("/gmail/v1/users/me/history")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != message || err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("the answer became %d %q, %v", resp.StatusCode, body, err)
	}
	until := time.Date(2026, 11, 29, 12, 20, 0, 0, time.UTC)
	if s := w.state(); s.User.Penalty != until.Sub(w.redis.Now()) {
		t.Errorf("the pause is %v; want until %v", s.User.Penalty, until)
	}
	resp, err = w.get("/gmail/v1/users/me/history")
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || w.calls != 1 {
		t.Errorf("%d calls were made in the pause, error %v", w.calls-1, err)
	}
}

func TestAMissingPermissionIsNoRefusal(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw, `{"error":{"code":403,"errors":[{"reason":"insufficientPermissions"}]}}`)
	})
	w.read("/gmail/v1/users/me/history")
	if s := w.state(); s.User.Penalty != 0 {
		t.Errorf("a pause of %v", s.User.Penalty)
	}
}

// A charge is taken back only when it is certain that nothing was sent.
func TestWhatIsRefunded(t *testing.T) {
	drop := func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err == nil {
			_ = c.Close()
		}
	}
	t.Run("dial failed", func(t *testing.T) {
		w := newWorld(t, ok)
		l, _ := net.Listen("tcp", "127.0.0.1:0")
		w.url = "http://" + l.Addr().String()
		_ = l.Close()
		w.expectFailure(100)
	})
	t.Run("the answer was lost", func(t *testing.T) {
		w := newWorld(t, drop)
		w.expectFailure(60)
	})
	t.Run("a transport that tells nothing", func(t *testing.T) {
		w := newWorld(t, ok)
		w.transport.Base = failingTransport{errors.New("no token")}
		w.expectFailure(60)
	})
	t.Run("a transport that says so", func(t *testing.T) {
		w := newWorld(t, ok)
		w.transport.Base = failingTransport{fmt.Errorf("oauth: %w", &quotahttp.NotSentError{Err: errors.New("no token")})}
		w.expectFailure(100)
	})
	t.Run("a transport that could not dial", func(t *testing.T) {
		w := newWorld(t, ok)
		w.transport.Base = failingTransport{&net.OpError{Op: "dial", Err: errors.New("refused")}}
		w.expectFailure(100)
	})
}

type failingTransport struct{ err error }

func (f failingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func (w *world) expectFailure(tokens int64) {
	w.Helper()
	if resp, err := w.get("/gmail/v1/users/me/threads/1"); err == nil {
		_ = resp.Body.Close()
		w.Fatal("the call succeeded")
	}
	if s := w.state(); s.User.Tokens != tokens || s.InFlight != 0 {
		w.Errorf("%d tokens, %d under way; want %d and 0", s.User.Tokens, s.InFlight, tokens)
	}
}

func batchRequest(t *testing.T, url string, lines ...string) *http.Request {
	t.Helper()
	return batchTo(t, url+"/batch/gmail/v1", lines...)
}

func batchTo(t *testing.T, url string, lines ...string) *http.Request {
	t.Helper()
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "--xyz\r\nContent-Type: application/http\r\nContent-ID: <%d>\r\n\r\n%s\r\nAccept: application/json\r\n\r\n\r\n", i, l)
	}
	b.WriteString("--xyz--\r\n")
	ctx := gmailquota.WithCall(t.Context(), "a", gmailquota.Realtime)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", `multipart/mixed; boundary="xyz"`)
	return req
}

func TestABatchCostsTheSumOfItsCalls(t *testing.T) {
	var got string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got = string(data)
		ok(rw, r)
	})
	req := batchRequest(t, w.url, "GET /gmail/v1/users/me/threads/1?format=full HTTP/1.1", "GET /gmail/v1/users/me/messages/2",
		"POST https://gmail.googleapis.com/gmail/v1/users/me/messages/3/modify HTTP/1.1")
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	s := w.state()
	if s.User.Tokens != 100-40-20-5 || s.InFlight != 3 {
		t.Errorf("%d tokens, %d under way; want 35 and 3", s.User.Tokens, s.InFlight)
	}
	_ = resp.Body.Close()
	if s := w.state(); s.InFlight != 0 {
		t.Errorf("%d under way after the answer", s.InFlight)
	}
	if !strings.Contains(got, "GET /gmail/v1/users/me/threads/1") || !strings.HasSuffix(got, "--xyz--\r\n") {
		t.Errorf("the server got %q", got)
	}
}

func TestABatchThatCannotBePricedIsNotSent(t *testing.T) {
	w := newWorld(t, ok)
	cheap := make([]string, 101)
	for i := range cheap {
		cheap[i] = "GET /gmail/v1/users/me/profile"
	}
	noBoundary := batchRequest(t, w.url, "GET /gmail/v1/users/me/profile")
	noBoundary.Header.Set("Content-Type", "multipart/mixed")
	for name, req := range map[string]*http.Request{
		"empty":          batchRequest(t, w.url),
		"unknown call":   batchRequest(t, w.url, "GET /gmail/v1/users/me/profile", "GET /drive/v3/files"),
		"no request":     batchRequest(t, w.url, ""),
		"no boundary":    noBoundary,
		"101 calls":      batchRequest(t, w.url, cheap...),
		"more at once":   batchRequest(t, w.url, cheap[:11]...),
		"dearer than it": batchRequest(t, w.url, "GET /gmail/v1/users/me/threads/1", "GET /gmail/v1/users/me/threads/2", "GET /gmail/v1/users/me/threads/3"),
	} {
		if resp, err := w.client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: it was sent", name)
		}
	}
	if s := w.state(); w.calls > 0 || s.User.Tokens != 100 {
		t.Errorf("%d calls, %d tokens", w.calls, s.User.Tokens)
	}
}

// A batch is answered with 200 whatever became of its calls.
func TestRefusalsWithinABatchAreReported(t *testing.T) {
	const (
		fine     = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
		user     = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n\r\n" + `{"error":{"code":429,"message":"Retry after %s","errors":[{"reason":"rateLimitExceeded"}]}}`
		crowd    = "HTTP/1.1 429 Too Many Requests\r\n\r\n" + `{"error":{"code":429,"message":"Too many concurrent requests for user","errors":[{"reason":"rateLimitExceeded"}]}}`
		noRight  = "HTTP/1.1 403 Forbidden\r\n\r\n" + `{"error":{"code":403,"errors":[{"reason":"insufficientPermissions"}]}}`
		rubbish  = "no answer"
		earlier  = "2026-11-29T12:10:00Z"
		later    = "2026-11-29T12:20:00Z"
		boundary = "batch_xyz"
	)
	for name, c := range map[string]struct {
		parts   []string
		cut     bool
		told    []string
		penalty bool // until later
	}{
		"none":                    {parts: []string{fine, noRight, rubbish, fine}},
		"one of three":            {parts: []string{fine, fmt.Sprintf(user, later), fine}, told: []string{gmailquota.BucketPenaltyUser}, penalty: true},
		"the same, told once":     {parts: []string{fmt.Sprintf(user, earlier), fmt.Sprintf(user, later), fmt.Sprintf(user, earlier)}, told: []string{gmailquota.BucketPenaltyUser}, penalty: true},
		"two kinds":               {parts: []string{crowd, fmt.Sprintf(user, later), crowd}, told: []string{gmailquota.BucketInFlight, gmailquota.BucketPenaltyUser}, penalty: true},
		"after what is no answer": {parts: []string{rubbish, fmt.Sprintf(user, later)}, told: []string{gmailquota.BucketPenaltyUser}, penalty: true},
		"the answer is cut off":   {parts: []string{fmt.Sprintf(user, later), fine}, cut: true, told: []string{gmailquota.BucketPenaltyUser}, penalty: true},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for i, p := range c.parts {
				fmt.Fprintf(&b, "--%s\r\nContent-Type: application/http\r\nContent-ID: <response-%d>\r\n\r\n%s\r\n", boundary, i, p)
			}
			if !c.cut {
				fmt.Fprintf(&b, "--%s--\r\n", boundary)
			}
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "multipart/mixed; boundary="+boundary)
				_, _ = io.WriteString(rw, b.String())
			})
			resp, err := w.client.Do(batchRequest(t, w.url, "GET /gmail/v1/users/me/profile", "GET /gmail/v1/users/me/profile"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != b.String() || err != nil {
				t.Errorf("the answer became %q, %v", body, err)
			}
			if !slices.Equal(w.refusals, c.told) {
				t.Errorf("told of %v; want %v", w.refusals, c.told)
			}
			var pause time.Duration
			if c.penalty {
				pause = time.Date(2026, 11, 29, 12, 20, 0, 0, time.UTC).Sub(w.redis.Now())
			}
			if s := w.state(); s.User.Penalty != pause {
				t.Errorf("a pause of %v; want %v", s.User.Penalty, pause)
			}
		})
	}
}
