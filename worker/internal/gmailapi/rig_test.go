package gmailapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "account-1"
	ann     = "ann@example.com"
	topic   = "projects/p/topics/gmail"
)

// grants are the tokens of one simulated account.
type grants struct {
	endpoint string
	refresh  string

	mu     sync.Mutex
	access string
	asked  int // of the token endpoint
}

func (g *grants) Token(context.Context, string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.access != "" {
		return g.access, nil
	}
	g.asked++
	body := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.refresh}}
	resp, err := http.PostForm(g.endpoint+"/token", body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if resp.StatusCode != http.StatusOK {
		return "", &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	g.access = answer.AccessToken
	return g.access, err
}

func (g *grants) Reject(_, access string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.access == access {
		g.access = ""
	}
}

type rig struct {
	*testing.T
	sim    *gmailsim.Server
	grants *grants
	guard  *gmailquota.Guard
	client *Client
	box    consumers.Mailbox
}

// newRig is a guarded client of a simulated Gmail with one mailbox.
func newRig(t *testing.T, cfg gmailsim.Config) *rig {
	t.Helper()
	sim, err := gmailsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	rdb := quotatest.Client(t, miniredis.RunT(t).Addr())
	guard, err := gmailquota.New(rdb, roomy())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, sim: sim, guard: guard, grants: &grants{endpoint: server.URL, refresh: sim.AddAccount(ann).RefreshToken}}
	r.client = r.newClient(Config{Endpoint: server.URL, Topic: topic, Tokens: r.grants, Guard: guard, MaxWait: time.Minute})
	t.Cleanup(func() {
		server.Close()
		sim.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	r.box, err = r.client.Mailbox(t.Context(), account, gmailquota.Realtime)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// roomy is for tests that are about calls, not about waiting.
func roomy() gmailquota.Config {
	c := gmailquota.DefaultConfig()
	c.UserLimit, c.ProjectLimit = 60_000_000, 600_000_000
	return c
}

func (r *rig) newClient(cfg Config) *Client {
	r.Helper()
	c, err := New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.CloseIdle)
	return c
}

func (r *rig) load(raw string) gmailsim.MessageRef {
	r.Helper()
	ref, err := r.sim.Load(ann, []byte(raw))
	if err != nil {
		r.Fatal(err)
	}
	return ref
}

// requireCharged holds the guard's charges equal to the simulator's meter: no call of Gmail went past the guard.
func (r *rig) requireCharged() {
	r.Helper()
	if charged, used := r.guard.Stats().Units, r.sim.Stats().Units; charged != used {
		r.Errorf("the guard charged %d units, Gmail counted %d", charged, used)
	}
}

// script is a base transport that answers from a list, without a network.
type script struct {
	mu      sync.Mutex
	answers []answer // the last one repeats
	calls   int
	tokens  []string
}

type answer struct {
	status int
	body   string
	header http.Header
	err    error
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[min(s.calls, len(s.answers)-1)]
	s.calls++
	s.tokens = append(s.tokens, req.Header.Get("Authorization"))
	if a.err != nil {
		return nil, a.err
	}
	rec := httptest.NewRecorder()
	for k, v := range a.header {
		rec.Header()[k] = v
	}
	rec.WriteHeader(a.status)
	_, _ = rec.WriteString(a.body)
	return rec.Result(), nil
}

// numbered gives tokens token-1, token-2, …: the next one after each rejection.
type numbered struct {
	mu sync.Mutex
	n  int
}

func (n *numbered) Token(context.Context, string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return "token-" + string(rune('1'+n.n)), nil
}

func (n *numbered) Reject(string, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n++
}
