package gmailsim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

// batch sends calls in one request and returns their statuses by content id.
func (r *rig) batch(calls map[string]string) map[string]int {
	r.t.Helper()
	var b strings.Builder
	for id, call := range calls {
		fmt.Fprintf(&b, "--x\r\nContent-Type: application/http\r\nContent-ID: <%s>\r\n\r\n%s\r\n", id, call)
	}
	b.WriteString("--x--")
	w := r.do("POST", "/batch/gmail/v1", []byte(b.String()), "Content-Type", "multipart/mixed; boundary=x")
	_, params, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if err != nil || w.Code != 200 {
		r.t.Fatalf("batch: %d %s %v", w.Code, w.Body, err)
	}
	codes := map[string]int{}
	for reader := multipart.NewReader(w.Body, params["boundary"]); ; {
		p, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return codes
		}
		if err != nil {
			r.t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(p), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			r.t.Fatal(err)
		}
		resp.Body.Close()
		codes[strings.Trim(p.Header.Get("Content-ID"), "<>")] = resp.StatusCode
	}
}

// taylorwilsdon/google_workspace_mcp#1009: the batch is 200 while its parts fail, each in its own way, or are missing.
func TestBatchAnswersEachCallForItself(t *testing.T) {
	r := newRig(t, Config{})
	m := r.deliver("a", "a@x")
	r.s.AddFault(Fault{Method: "labels.list", Status: 500})
	r.s.AddFault(Fault{Method: "getProfile", Drop: true})
	r.s.AddFault(Fault{Method: "drafts.list", Status: 429})
	got := r.batch(map[string]string{
		"ok":      "GET /gmail/v1/users/me/messages/" + m.ID + "?format=minimal",
		"gone":    "GET /gmail/v1/users/me/messages/1111111111111111 HTTP/1.1\r\nAccept: application/json",
		"bad":     "GET /gmail/v1/users/me/messages/xyz",
		"failed":  "GET /gmail/v1/users/me/labels",
		"missing": "GET /gmail/v1/users/me/profile",
		"limited": "GET /gmail/v1/users/me/drafts",
		"changed": "POST /gmail/v1/users/me/messages/" + m.ID + "/modify\r\nContent-Type: application/json\r\n\r\n{\"addLabelIds\":[\"STARRED\"]}",
		"upload":  "POST /upload/gmail/v1/users/me/messages",
		"garbled": "hello",
	})
	want := map[string]int{
		"response-ok": 200, "response-gone": 404, "response-bad": 400, "response-failed": 500, "response-limited": 429,
		"response-changed": 200, "response-upload": 400, "response-garbled": 400,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if labels := r.labels(m.ID); len(labels) != 3 {
		t.Errorf("the change was not made: %v", labels)
	}
}

// googleapis/google-api-dotnet-client#1982: a batch of n is n calls in flight, and costs the sum.
func TestBatchCountsAllItsCalls(t *testing.T) {
	r := newRig(t, Config{InFlight: 30})
	m := r.deliver("a", "a@x")
	calls := map[string]string{}
	for i := range 50 {
		calls[fmt.Sprint(i)] = "GET /gmail/v1/users/me/messages/" + m.ID
	}
	count := map[int]int{}
	for _, code := range r.batch(calls) {
		count[code]++
	}
	s := r.s.Stats()
	if count[200] != 30 || count[429] != 20 || s.Units != 600 || s.MaxUserInFlight != 31 || s.Accounts[ann].InFlight != 0 {
		t.Errorf("got %v and %+v", count, s)
	}
}

func TestBatchRefusesWhatIsNone(t *testing.T) {
	r := newRig(t, Config{})
	var many strings.Builder
	for range maxBatch + 1 {
		many.WriteString("--x\r\n\r\nGET /gmail/v1/users/me/profile\r\n")
	}
	for media, body := range map[string]string{
		"application/json":             "{}",
		"multipart/mixed":              "--x\r\n\r\nGET /\r\n--x--",
		"multipart/mixed; boundary=y":  "--x\r\n\r\nGET /\r\n--x--",
		"multipart/mixed; boundary=x":  "--x--",
		"multipart/mixed; boundary=x ": many.String() + "--x--",
	} {
		if w := r.do("POST", "/batch/gmail/v1", []byte(body), "Content-Type", media); w.Code != 400 {
			t.Errorf("%s: %d", media, w.Code)
		}
	}
	if s := r.s.Stats(); s.Units != 0 {
		t.Errorf("charged %d", s.Units)
	}
}
