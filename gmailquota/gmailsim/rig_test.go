package gmailsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a simulator with one account and an access token for it. Requests go straight to the handler, without
// sockets, so that it works on synctest's time too.
type rig struct {
	t       testing.TB
	s       *Server
	h       http.Handler
	account Account
	token   string
}

const ann = "ann@example.com"

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &rig{t: t, s: s, h: s.Handler(), account: s.AddAccount(ann)}
	r.token = r.login(r.account)
	return r
}

// login gets an access token.
func (r *rig) login(a Account) string {
	r.t.Helper()
	w := r.refresh(a.RefreshToken)
	if w.Code != http.StatusOK {
		r.t.Fatalf("token endpoint: %d %s", w.Code, w.Body)
	}
	return decode[struct {
		Token string `json:"access_token"`
	}](r.t, w.Body.Bytes()).Token
}

func (r *rig) refresh(refreshToken string) *httptest.ResponseRecorder {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refreshToken}, "client_id": {"me"}}
	req := httptest.NewRequest(http.MethodPost, "/token", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	return w
}

// do makes an authorized call; path is below /gmail/v1/users/me/ unless it begins with a slash. A body that is no
// []byte is sent as JSON.
func (r *rig) do(verb, path string, body any, headers ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/gmail/v1/users/me/" + path
	}
	data, raw := body.([]byte)
	if !raw && body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			r.t.Fatal(err)
		}
	}
	req := httptest.NewRequest(verb, path, bytes.NewReader(data))
	req.Header.Set("Authorization", "Bearer "+r.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	return w
}

// ok makes a call that must succeed, and returns its body.
func (r *rig) ok(verb, path string, body any) []byte {
	r.t.Helper()
	w := r.do(verb, path, body)
	if w.Code/100 != 2 {
		r.t.Fatalf("%s %s: %d %s", verb, path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// fails makes a call that must be answered with an error, and checks status and reason.
func (r *rig) fails(code int, reason, verb, path string, body any) {
	r.t.Helper()
	w := r.do(verb, path, body)
	e := decode[struct {
		Error struct {
			Code   int
			Status string
			Errors []struct{ Domain, Reason, Message string }
		}
	}](r.t, w.Body.Bytes()).Error
	if w.Code != code || e.Code != code || len(e.Errors) != 1 || e.Errors[0].Reason != reason {
		r.t.Errorf("%s %s: got %d %s, want %d %s", verb, path, w.Code, w.Body, code, reason)
	}
}

func decode[T any](t testing.TB, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

// deliver delivers a small message and returns where it went.
func (r *rig) deliver(subject, id string, refs ...string) MessageRef {
	r.t.Helper()
	ref, err := r.s.Deliver(ann, mailText(subject, id, refs...))
	if err != nil {
		r.t.Fatal(err)
	}
	return ref
}

func mailText(subject, id string, refs ...string) []byte {
	text := fmt.Sprintf("From: Bob <bob@example.net>\r\nTo: ann@example.com\r\nSubject: %s\r\nMessage-ID: <%s>\r\n", subject, id)
	if len(refs) > 0 {
		text += "References: <" + strings.Join(refs, "> <") + ">\r\n"
	}
	return []byte(text + "\r\nHello, " + id + "\r\n")
}

// must fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// resource is a message or one of its parts, as far as the tests look at it.
type resource struct {
	ID, ThreadID, Snippet, HistoryID, InternalDate, Raw string
	LabelIDs                                            []string
	SizeEstimate                                        int
	Payload                                             *payload
}

type payload struct {
	PartID, MIMEType, Filename string
	Headers                    []Header
	Body                       struct {
		AttachmentID string
		Size         int
		Data         string
	}
	Parts []payload
}

func (p *payload) walk(visit func(*payload)) {
	visit(p)
	for i := range p.Parts {
		p.Parts[i].walk(visit)
	}
}

// mailFolder is where the real mail lies.
func mailFolder(t *testing.T) string {
	folder := os.Getenv("GMAILSYNC_MAIL")
	if folder == "" {
		folder = "../../../shared/mail"
	}
	if _, err := os.Stat(folder); err != nil {
		t.Skip("no real mail here: set GMAILSYNC_MAIL to a folder with lists/*.mbox and mime/*.eml")
	}
	return folder
}
