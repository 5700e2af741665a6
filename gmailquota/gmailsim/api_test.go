package gmailsim

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// relaticle/relaticle#612: what Gmail refuses is refused here.
func TestStrictRequestChecks(t *testing.T) {
	r := newRig(t, Config{})
	m := r.deliver("a", "a@x")
	for _, c := range []struct {
		code         int
		reason       string
		verb, target string
		body         any
	}{
		{400, "invalidArgument", "GET", "threads?maxResults=501", nil},
		{400, "invalidArgument", "GET", "threads?maxResults=-1", nil},
		{400, "invalidArgument", "GET", "messages?maxResults=ten", nil},
		{400, "invalidArgument", "GET", "messages?includeSpamTrash=yes", nil},
		{400, "invalidArgument", "GET", "messages?labelIds=NOPE", nil},
		{400, "invalidArgument", "GET", "messages?pagetoken=x", nil},
		{400, "invalidArgument", "GET", "history?startHistoryId=900&maxResults=501", nil},
		{400, "invalidArgument", "GET", "messages/" + m.ID + "?format=Full", nil},
		{400, "invalidArgument", "GET", "threads/" + m.ID + "?format=raw", nil},
		{400, "invalidArgument", "GET", "messages/" + m.ID + "?alt=media", nil},
		{400, "invalidArgument", "GET", "messages/" + m.ID + "?fields=id,nope", nil},
		{400, "invalidArgument", "GET", "messages/" + m.ID + "?fields=payload(headers", nil},
		{400, "invalidArgument", "GET", "messages/xyz", nil},
		{400, "invalidArgument", "GET", "messages/" + strings.ToUpper(m.ID), nil},
		{400, "invalidArgument", "GET", "threads/8000000000000000", nil},
		{400, "invalidArgument", "GET", "threads/11111111111111111", nil},
		{404, "notFound", "GET", "messages/1111111111111111", nil},
		{404, "notFound", "GET", "threads/1111111111111111", nil},
		{404, "notFound", "GET", "threads/12", nil},
		{404, "notFound", "GET", "labels/Label_9", nil},
		{404, "notFound", "GET", "drafts/r9", nil},
		{404, "notFound", "GET", "nothing", nil},
		{400, "invalidArgument", "GET", "messages/" + m.ID + "/attachments/nonsense", nil},
		{400, "invalidArgument", "POST", "messages/" + m.ID + "/modify", map[string]any{}},
		{400, "invalidArgument", "POST", "messages/" + m.ID + "/modify", map[string]any{"addLabelIds": []string{"NOPE"}}},
		{400, "invalidArgument", "POST", "messages/" + m.ID + "/modify", map[string]any{"addLabelIds": []string{"SENT"}}},
		{400, "invalidArgument", "POST", "messages/" + m.ID + "/modify", map[string]any{"addLabels": []string{"INBOX"}}},
		{400, "invalidArgument", "POST", "messages/batchModify", map[string]any{"addLabelIds": []string{"INBOX"}}},
		{400, "invalidArgument", "POST", "messages/batchDelete", map[string]any{"ids": []string{}}},
		{400, "invalidArgument", "POST", "messages/batchDelete", map[string]any{"ids": []string{"x"}}},
		{400, "invalidArgument", "POST", "watch", map[string]any{"topicName": "mail"}},
		{400, "invalidArgument", "POST", "watch", map[string]any{"topicName": "projects/p/topics/mail", "labelFilterBehavior": "only"}},
		{400, "invalidArgument", "POST", "watch", map[string]any{"topicName": "projects/p/topics/mail", "labelIds": []string{"NOPE"}}},
		{400, "invalidArgument", "POST", "messages", map[string]any{}},
		{400, "invalidArgument", "POST", "messages", map[string]any{"raw": "!!!"}},
		{400, "invalidArgument", "POST", "messages", []byte("{")},
		{400, "invalidArgument", "POST", "messages/send", map[string]any{"raw": "eDogeQ"}},
	} {
		r.fails(c.code, c.reason, c.verb, c.target, c.body)
	}
}

// Only the account itself, with a token that is valid now.
func TestWhoMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TokenTTL: time.Minute})
		r.s.AddAccount("bob@example.com")
		r.ok("GET", "/gmail/v1/users/Ann@Example.com/profile", nil)
		// googlecodelabs/gcf-gmail-codelab#10
		r.fails(403, "forbidden", "GET", "/gmail/v1/users/bob@example.com/profile", nil)
		time.Sleep(time.Minute)
		w := r.do("GET", "profile", nil)
		if w.Code != 401 || !strings.Contains(w.Header().Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("an expired token: %d %v", w.Code, w.Header())
		}
		r.fails(401, "authError", "GET", "profile", nil)
		r.token = "ya29.unknown"
		r.fails(401, "authError", "GET", "profile", nil)
	})
}

func TestFormats(t *testing.T) {
	r := newRig(t, Config{})
	raw := []byte("From: a@b.c\nTo: d@e.f\nSubject: Hi\nX-One: 1\nX-One: 2\n\nText \xff")
	ref := must(r.s.Deliver(ann, raw, "INBOX"))(t)
	get := func(query string) string {
		t.Helper()
		return string(r.ok("GET", "messages/"+ref.ID+"?"+query, nil))
	}
	envelope := fmt.Sprintf(`{"id":"%s","threadId":"%s","labelIds":["INBOX"],"snippet":"Text \ufffd"`, ref.ID, ref.ID)
	envelope = strings.ReplaceAll(envelope, `\ufffd`, "\uFFFD")
	m := decode[resource](t, []byte(get("")))
	tail := fmt.Sprintf(`,"sizeEstimate":%d,"historyId":"%d","internalDate":"%s"}`, len(raw), ref.HistoryID, m.InternalDate)
	headers := `{"name":"From","value":"a@b.c"},{"name":"To","value":"d@e.f"},{"name":"Subject","value":"Hi"},{"name":"X-One","value":"1"},{"name":"X-One","value":"2"}`
	body := base64.RawURLEncoding.EncodeToString([]byte("Text \xff"))
	for query, want := range map[string]string{
		"format=minimal": envelope + tail,
		"format=full": envelope + `,"payload":{"partId":"","mimeType":"text/plain","filename":"","headers":[` + headers +
			`],"body":{"size":6,"data":"` + body + `"}}` + tail,
		"format=metadata": envelope + `,"payload":{"mimeType":"text/plain","headers":[` + headers + `]}` + tail,
		"format=metadata&metadataHeaders=x-one&metadataHeaders=to": envelope + `,"payload":{"mimeType":"text/plain","headers":[` +
			`{"name":"To","value":"d@e.f"},{"name":"X-One","value":"1"},{"name":"X-One","value":"2"}]}` + tail,
		"format=raw": envelope + `,"raw":"` + base64.URLEncoding.EncodeToString(raw) + `"` + tail,
	} {
		if got := get(query); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", query, got, want)
		}
	}
	if get("") != get("format=full") {
		t.Error("full is not the default")
	}
}

// An archived, read message has no labelIds; an empty one no snippet, headers or data.
func TestAbsentFieldsAreLeftOut(t *testing.T) {
	r := newRig(t, Config{})
	ref := must(r.s.Deliver(ann, []byte{}, []string{}...))(t)
	if m := string(r.ok("GET", "messages/"+ref.ID, nil)); !strings.Contains(m, `"payload":{"partId":"","mimeType":"text/plain","filename":"","body":{"size":0}}`) ||
		strings.Contains(m, "labelIds") || strings.Contains(m, "snippet") {
		t.Errorf("got %s", m)
	}
}

func TestAttachmentIDsDifferAndStayValid(t *testing.T) {
	r := newRig(t, Config{InlineLimit: 10})
	raw := "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nshort\n--b\n\na long text part\n" +
		"--b\nContent-Type: text/plain; name=a.txt\n\nfile\n--b\nContent-Type: image/png\n\npng\n--b--"
	ref := must(r.s.Deliver(ann, []byte(raw)))(t)
	other := must(r.s.Deliver(ann, []byte(raw)))(t)
	ids := func() (list []string) {
		m := decode[resource](t, r.ok("GET", "messages/"+ref.ID, nil))
		m.Payload.walk(func(p *payload) { list = append(list, p.Body.AttachmentID) })
		return list
	}
	first, second := ids(), ids()
	data := map[int]string{2: "a long text part", 3: "file", 4: "png"}
	for i := range first {
		if (first[i] == "") != (data[i] == "") || first[i] != "" && first[i] == second[i] {
			t.Errorf("part %d: ids %q and %q", i, first[i], second[i])
		}
		if first[i] == "" {
			continue
		}
		for _, id := range []string{first[i], second[i]} {
			got := decode[struct {
				Size int
				Data string
			}](t, r.ok("GET", "messages/"+ref.ID+"/attachments/"+id, nil))
			if b, _ := base64.URLEncoding.DecodeString(got.Data); string(b) != data[i] || got.Size != len(b) {
				t.Errorf("part %d: %q, want %q", i, b, data[i])
			}
			r.fails(400, "invalidArgument", "GET", "messages/"+other.ID+"/attachments/"+id, nil)
		}
	}
}

func TestPartialResponses(t *testing.T) {
	r := newRig(t, Config{})
	ref := r.deliver("a", "a@x")
	for _, c := range []struct{ path, want string }{
		{"threads?fields=threads(id),nextPageToken", fmt.Sprintf(`{"threads":[{"id":"%s"}]}`, ref.ID)},
		{"threads?fields=threads/id", fmt.Sprintf(`{"threads":[{"id":"%s"}]}`, ref.ID)},
		{"messages/" + ref.ID + "?fields=labelIds", `{"labelIds":["INBOX","UNREAD"]}`},
		{"messages/" + ref.ID + "?fields=payload(headers(name),body/size),id", fmt.Sprintf(`{"id":"%s","payload":{"body":{"size":12},`+
			`"headers":[{"name":"From"},{"name":"To"},{"name":"Subject"},{"name":"Message-ID"}]}}`, ref.ID)},
		{"threads/" + ref.ID + "?fields=messages/historyId", fmt.Sprintf(`{"messages":[{"historyId":"%d"}]}`, ref.HistoryID)},
		{"threads/" + ref.ID + "?fields=messages/payload/*/size", `{"messages":[{"payload":{"body":{"size":12},"headers":[{},{},{},{}]}}]}`},
		{"threads/" + ref.ID + "?fields=id,id", fmt.Sprintf(`{"id":"%s"}`, ref.ID)},
	} {
		if got := string(r.ok("GET", c.path, nil)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.path, got, c.want)
		}
	}
}

func TestGzipWhenAsked(t *testing.T) {
	r := newRig(t, Config{})
	ref := must(r.s.Deliver(ann, bytes.Repeat([]byte("text "), 1000)))(t)
	plain := r.do("GET", "messages/"+ref.ID, nil)
	zipped := r.do("GET", "messages/"+ref.ID, nil, "Accept-Encoding", "gzip")
	if plain.Header().Get("Content-Encoding") != "" || zipped.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers: %v and %v", plain.Header(), zipped.Header())
	}
	z := must(gzip.NewReader(zipped.Body))(t)
	if got := must(io.ReadAll(z))(t); !bytes.Equal(got, plain.Body.Bytes()) {
		t.Error("the compressed answer differs")
	}
}

func TestProfileCountsAndTellsTheHistoryID(t *testing.T) {
	r := newRig(t, Config{})
	a := r.deliver("a", "a@x")
	r.deliver("a", "b@x", "a@x")
	last := must(r.s.Trash(ann, a.ID))(t)
	want := fmt.Sprintf(`{"emailAddress":"ann@example.com","messagesTotal":2,"threadsTotal":1,"historyId":"%d"}`, last)
	if got := string(r.ok("GET", "profile", nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Through real sockets: an ordinary client's gzip, and many calls at once.
func TestOverTheNetwork(t *testing.T) {
	r := newRig(t, Config{InFlight: 8})
	server := httptest.NewServer(r.h)
	defer server.Close()
	client := server.Client()
	ref := must(r.s.Deliver(ann, bytes.Repeat([]byte("text "), 1000)))(t)
	want := r.ok("GET", "messages/"+ref.ID, nil)
	results := make(chan error, 8)
	for range 8 { // as many at a time as the ceiling allows, again and again: none may be refused
		go func() {
			for range 50 {
				req, err := http.NewRequest(http.MethodGet, server.URL+"/gmail/v1/users/me/messages/"+ref.ID, nil)
				if err != nil {
					results <- err
					return
				}
				req.Header.Set("Authorization", "Bearer "+r.token)
				resp, err := client.Do(req)
				if err != nil {
					results <- err
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("answer %d differs from the first", resp.StatusCode)
				}
				if err != nil {
					results <- err
					return
				}
			}
			results <- nil
		}()
	}
	for range 8 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if s := r.s.Stats(); s.Refused != 0 || s.MaxUserInFlight > 8 {
		t.Errorf("got %+v", s)
	}
}
