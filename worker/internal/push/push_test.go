package push

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gmailsync/gmailsync/consumers"
)

const (
	audience = "https://mirror.example/push"
	sender   = "push@project.iam.gserviceaccount.com"
	keyID    = "key-1"
)

// signer makes tokens as Google does, and serves its keys.
type signer struct{ key *rsa.PrivateKey }

func newSigner() signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return signer{key}
}

// google is the signer whose keys the handlers under test trust.
var google = sync.OnceValue(newSigner)

func (s signer) token(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	encode := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	signed := encode(header) + "." + encode(claims)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// RoundTrip answers with the keys, whatever is asked for.
func (s signer) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	fmt.Fprintf(w, `{"keys":[{"kid":%q,"kty":"RSA","alg":"RS256","n":%q,"e":"AQAB"}]}`, keyID,
		base64.RawURLEncoding.EncodeToString(s.key.N.Bytes()))
	return w.Result(), nil
}

func goodHeader() map[string]any { return map[string]any{"alg": "RS256", "kid": keyID, "typ": "JWT"} }

func goodClaims() map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "email": sender, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// accounts knows one address.
type accounts struct {
	account consumers.Account
	err     error
}

func (a *accounts) AccountByAddress(_ context.Context, address string) (consumers.Account, error) {
	if a.err != nil {
		return consumers.Account{}, a.err
	}
	if address != a.account.Address {
		return consumers.Account{}, consumers.ErrNoAccount
	}
	return a.account, nil
}

type queue struct {
	jobs []consumers.Job
	err  error
}

func (q *queue) Publish(_ context.Context, jobs ...consumers.Job) error {
	if q.err != nil {
		return q.err
	}
	q.jobs = append(q.jobs, jobs...)
	return nil
}

type rig struct {
	signer   signer
	handler  *Handler
	accounts *accounts
	queue    *queue
	logs     *observer.ObservedLogs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, google())
}

// newRigWith fetches Google's keys with another transport.
func newRigWith(t *testing.T, keys http.RoundTripper) *rig {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	r := &rig{
		signer: google(), queue: &queue{}, logs: logs,
		accounts: &accounts{account: consumers.Account{ID: "1234567890", Address: "ann.b@example.com", State: consumers.Live, Cursor: 1700}},
	}
	var err error
	r.handler, err = New(t.Context(), Config{Audience: audience, ServiceAccount: sender, CertsURL: "https://keys.example/certs", HTTP: keys},
		r.accounts, r.queue, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) post(t *testing.T, token, body string) int {
	t.Helper()
	return r.send(t, token, strings.NewReader(body))
}

func (r *rig) send(t *testing.T, token string, body io.Reader) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push", body)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w.Code
}

func (r *rig) good(t *testing.T) string { return r.signer.token(t, goodHeader(), goodClaims()) }

func wrap(data string) string {
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":"1"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString([]byte(data)))
}

// vercel/chat#797, google/adk-go#1241: the audience is chosen by whoever mints a token.
func TestOnlyTheConfiguredServiceAccountMayPush(t *testing.T) {
	r := newRig(t)
	stranger := newSigner()
	with := func(k string, v any) map[string]any {
		c := goodClaims()
		if c[k] = v; v == nil {
			delete(c, k)
		}
		return c
	}
	es256 := map[string]any{"alg": "ES256", "kid": keyID}
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"as Google signs":          {r.good(t), http.StatusNoContent},
		"issuer without https":     {r.signer.token(t, goodHeader(), with("iss", "accounts.google.com")), http.StatusNoContent},
		"issued 5 s in the future": {r.signer.token(t, goodHeader(), with("iat", time.Now().Add(5*time.Second).Unix())), http.StatusNoContent},
		"no token":                 {"", http.StatusUnauthorized},
		"no JWT":                   {"rubbish", http.StatusForbidden},
		"other service account":    {r.signer.token(t, goodHeader(), with("email", "x@stranger.iam.gserviceaccount.com")), http.StatusForbidden},
		"no email":                 {r.signer.token(t, goodHeader(), with("email", nil)), http.StatusForbidden},
		"email not verified":       {r.signer.token(t, goodHeader(), with("email_verified", false)), http.StatusForbidden},
		"verified as text":         {r.signer.token(t, goodHeader(), with("email_verified", "true")), http.StatusForbidden},
		"other audience":           {r.signer.token(t, goodHeader(), with("aud", "https://other.example")), http.StatusForbidden},
		"other issuer":             {r.signer.token(t, goodHeader(), with("iss", "https://evil.example")), http.StatusForbidden},
		"expired":                  {r.signer.token(t, goodHeader(), with("exp", time.Now().Add(-time.Minute).Unix())), http.StatusForbidden},
		"other key":                {stranger.token(t, goodHeader(), goodClaims()), http.StatusForbidden},
		"another algorithm":        {r.signer.token(t, es256, goodClaims())[:40] + ".e30.AA", http.StatusForbidden},
	} {
		if got := r.post(t, c.token, wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMissingConfigurationIsRefusedAtStart(t *testing.T) {
	for _, cfg := range []Config{
		{ServiceAccount: sender, CertsURL: "https://keys.example"},
		{Audience: audience, CertsURL: "https://keys.example"},
		{Audience: audience, ServiceAccount: sender, CertsURL: "certs"},
	} {
		if _, err := New(t.Context(), cfg, &accounts{}, &queue{}, zap.NewNop()); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// openclaw/gogcli#271, NousResearch/hermes-agent#10881: what can never be worked is acknowledged, or it comes for ever.
// googleworkspace/python-samples#200: the id is a number in a push and a string elsewhere.
func TestEveryProvenRequestIsAnsweredOnce(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		body   string
		store  error
		queue  error
		state  consumers.State
		want   int
		kind   Kind
		cursor consumers.HistoryID
	}{
		"number":            {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`), want: 204, kind: Accepted},
		"string":            {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":"1710"}`), want: 204, kind: Accepted},
		"above 2^53":        {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":9007199254740993}`), cursor: 1 << 53, want: 204, kind: Accepted},
		"other letter case": {body: wrap(`{"emailAddress":"Ann.B@Example.com","historyId":1710}`), want: 204, kind: Accepted},
		"unwrapped":         {body: `{"emailAddress":"ann.b@example.com","historyId":1710}`, want: 204, kind: Accepted},
		"more digits":       {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":10000}`), want: 204, kind: Accepted},
		"stored already":    {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":999}`), want: 204, kind: Stale},
		"unknown address":   {body: wrap(`{"emailAddress":"ab@example.com","historyId":1710}`), want: 204, kind: Unknown},
		"revoked account":   {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`), state: consumers.Reauth, want: 204, kind: Idle},
		"not base64":        {body: `{"message":{"data":"%%%"}}`, want: 204, kind: Malformed},
		"not JSON inside":   {body: wrap(`historyId=1`), want: 204, kind: Malformed},
		"not JSON":          {body: `<html>`, want: 204, kind: Malformed},
		"empty":             {body: ``, want: 204, kind: Malformed},
		"no history id":     {body: wrap(`{"emailAddress":"ann.b@example.com"}`), want: 204, kind: Malformed},
		"negative id":       {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":-3}`), want: 204, kind: Malformed},
		"far too long":      {body: wrap(strings.Repeat("x", maxBody)), want: 204, kind: Malformed},
		"store away":        {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`), store: away, want: 503, kind: Failed},
		"queue away":        {body: wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`), queue: away, want: 503, kind: Failed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.accounts.err, r.queue.err = c.store, c.queue
			if c.state != "" {
				r.accounts.account.State = c.state
			}
			r.accounts.account.Cursor = max(r.accounts.account.Cursor, c.cursor)
			if got := r.post(t, r.good(t), c.body); got != c.want {
				t.Errorf("answered %d, want %d", got, c.want)
			}
			if n := r.handler.Counts()[c.kind]; n != 1 {
				t.Errorf("counted %v, want one %s", r.handler.Counts(), c.kind)
			}
			switch published := len(r.queue.jobs); {
			case c.kind != Accepted && published > 0:
				t.Errorf("published %+v", r.queue.jobs)
			case c.kind == Accepted && (published != 1 || r.queue.jobs[0].Account != "1234567890"):
				t.Errorf("published %+v, want one job of the account", r.queue.jobs)
			}
			for _, entry := range r.logs.All() {
				if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, "example.com") {
					t.Errorf("an address in the log: %s", text)
				}
			}
		})
	}
}

// What failed on the way is no proof of anything: it is to be delivered again.
func TestAPushIsNotLostToAPassingFault(t *testing.T) {
	const body = `{"emailAddress":"ann.b@example.com","historyId":1710}`
	answer := func(status int, text string) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
	}
	for name, c := range map[string]struct {
		keys http.RoundTripper
		body io.Reader
	}{
		"keys out of reach":   {keys: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") })},
		"keys not served":     {keys: answer(http.StatusBadGateway, "{}")},
		"keys are a web page": {keys: answer(http.StatusOK, "<html>")},
		"body of keys cut off": {keys: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))}, nil
		})},
		"body cut off": {keys: google(), body: io.MultiReader(strings.NewReader(wrap(body)[:40]), iotest.ErrReader(io.ErrUnexpectedEOF))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, c.keys)
			if c.body == nil {
				c.body = strings.NewReader(wrap(body))
			}
			if got := r.send(t, r.good(t), c.body); got != http.StatusServiceUnavailable {
				t.Errorf("answered %d, want 503", got)
			}
			if n := r.handler.Counts(); n[Failed] != 1 || len(n) != 1 {
				t.Errorf("counted %v, want one %s", n, Failed)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Keys that never come must not hold Pub/Sub's request.
func TestFetchingTheKeysIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigWith(t, roundTrip(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}))
		began := time.Now()
		if got := r.post(t, r.good(t), "{}"); got != http.StatusServiceUnavailable || time.Since(began) != certsTimeout {
			t.Errorf("answered %d after %v, want 503 after %v", got, time.Since(began), certsTimeout)
		}
	})
}

// openclaw/gogcli#271: Pub/Sub delivers twice. Both are acknowledged; the jobs have one key, so the runner folds them.
func TestSameNotificationTwiceIsAcknowledgedTwice(t *testing.T) {
	r := newRig(t)
	body := wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`)
	for range 2 {
		if got := r.post(t, r.good(t), body); got != http.StatusNoContent {
			t.Errorf("answered %d", got)
		}
	}
	if len(r.queue.jobs) != 2 || r.queue.jobs[0].Key() != r.queue.jobs[1].Key() {
		t.Errorf("published %+v, want two jobs of one key", r.queue.jobs)
	}
	r.accounts.account.Cursor = 1710
	if got := r.post(t, r.good(t), body); got != http.StatusNoContent || len(r.queue.jobs) != 2 {
		t.Errorf("after the change was stored: answered %d, %d jobs", got, len(r.queue.jobs))
	}
}

// drt-hub/drt#1162: a forged push must be seen by somebody, and must not say whose mailbox it was about.
func TestRefusedRequestIsCountedAndLogged(t *testing.T) {
	r := newRig(t)
	if got := r.post(t, "rubbish", wrap(`{"emailAddress":"ann.b@example.com","historyId":1710}`)); got != http.StatusForbidden {
		t.Errorf("answered %d", got)
	}
	warnings := r.logs.FilterLevelExact(zapcore.WarnLevel).All()
	if n := r.handler.Counts()[Refused]; n != 1 || len(warnings) != 1 || len(r.queue.jobs) != 0 {
		t.Errorf("%d counted, %d warnings, %d jobs", n, len(warnings), len(r.queue.jobs))
	}
	for _, w := range warnings {
		if text := fmt.Sprint(w.Message, w.ContextMap()); strings.Contains(text, "example.com") || strings.Contains(text, "rubbish") {
			t.Errorf("an address or a token in the log: %s", text)
		}
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	w := httptest.NewRecorder()
	newRig(t).handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/push", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(wrap(`{"emailAddress":"a@example.com","historyId":1}`)))
	f.Add([]byte(`{"emailAddress":"a@example.com","historyId":"18446744073709551615"}`))
	f.Add([]byte(`{"message":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := parse(body)
		if err == nil && (n.address == "" || n.address != strings.ToLower(n.address)) {
			t.Errorf("accepted an address %q", n.address)
		}
	})
}
