package gmailapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// refreshed gets its token over the network, as part of the call that needs it.
type refreshed struct{ url string }

func (r refreshed) Token(ctx context.Context, _ string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the token endpoint answered %d", resp.StatusCode)
	}
	return "token", nil
}

func (refreshed) Reject(string, string) {}

// What never reached Gmail is not charged, however far its token came.
func TestACallThatDidNotReachGmailIsTakenBack(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(func() {
		endpoint.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	revoked := &consumers.MailboxError{Fault: consumers.AccountFault, State: consumers.Reauth}
	for name, c := range map[string]struct {
		tokens   Tokens
		base     http.RoundTripper // nil: to a closed port
		refunded bool
	}{
		"no token":                                {failingTokens{revoked}, &script{answers: []answer{{status: 200}}}, true},
		"a new token, and Gmail does not listen":  {refreshed{endpoint.URL}, nil, true},
		"a new token, and Gmail's answer is lost": {refreshed{endpoint.URL}, &script{answers: []answer{{err: errors.New("lost")}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			guard, err := gmailquota.New(quotatest.Client(t, miniredis.RunT(t).Addr()), roomy())
			if err != nil {
				t.Fatal(err)
			}
			client, err := New(Config{Endpoint: "http://" + closed.Addr().String(), Tokens: c.tokens, Guard: guard, MaxWait: time.Minute, Base: c.base})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.CloseIdle)
			box, err := client.Mailbox(t.Context(), account, gmailquota.Realtime)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := box.Profile(t.Context()); err == nil {
				t.Fatal("the call succeeded")
			}
			s := guard.Stats()
			want := s.Admitted // a profile costs 1 unit
			if c.refunded {
				want = 0
			}
			if s.Admitted == 0 || s.Units != want {
				t.Errorf("%d attempts, %d units stay charged; want %d", s.Admitted, s.Units, want)
			}
		})
	}
}
