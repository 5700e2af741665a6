package gmailsim

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func (r *rig) labels(id string) []string {
	r.t.Helper()
	return decode[resource](r.t, r.ok("GET", "messages/"+id+"?format=minimal", nil)).LabelIDs
}

// gauteh/lieer#36: trashing is a label change on every message of a thread, not a deletion.
func TestThreadsAreTrashedByLabels(t *testing.T) {
	r := newRig(t, Config{})
	a := r.deliver("a", "a@x")
	b := r.deliver("a", "b@x", "a@x")
	r.ok("POST", "threads/"+a.ID+"/trash", nil)
	for _, id := range []string{a.ID, b.ID} {
		if got := r.labels(id); !slices.Equal(got, []string{"TRASH", "UNREAD"}) {
			t.Errorf("trashed: %v", got)
		}
	}
	r.ok("POST", "messages/"+a.ID+"/untrash", nil)
	r.ok("POST", "threads/"+a.ID+"/modify", map[string]any{"addLabelIds": []string{"STARRED"}, "removeLabelIds": []string{"UNREAD"}})
	if got := r.labels(a.ID); !slices.Equal(got, []string{"STARRED"}) {
		t.Errorf("got %v", got)
	}
	r.ok("POST", "threads/"+a.ID+"/untrash", nil)
	if got := r.labels(b.ID); !slices.Equal(got, []string{"STARRED"}) {
		t.Errorf("got %v", got)
	}
	if w := r.do("DELETE", "threads/"+a.ID, nil); w.Code != 204 || w.Body.Len() != 0 {
		t.Errorf("delete: %d %s", w.Code, w.Body)
	}
	r.fails(404, "notFound", "GET", "messages/"+b.ID, nil)
	if got := r.deliver("a", "c@x", "a@x"); got.ThreadID == a.ID {
		t.Error("a deleted thread came back")
	}
}

func TestBulkChangesPassOverUnknownIDs(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.deliver("a", "a@x"), r.deliver("b", "b@x")
	ids := []string{a.ID, "1111111111111111", b.ID}
	r.ok("POST", "messages/batchModify", map[string]any{"ids": ids, "removeLabelIds": []string{"UNREAD"}})
	if got := r.labels(b.ID); !slices.Equal(got, []string{"INBOX"}) {
		t.Errorf("got %v", got)
	}
	start := r.s.HistoryID(ann)
	r.ok("POST", "messages/batchDelete", map[string]any{"ids": ids})
	if got := r.history(start, ""); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	if got := r.s.Mailbox(ann); len(got) != 0 {
		t.Errorf("%d messages are left", len(got))
	}
}

func TestInsertImportAndUploads(t *testing.T) {
	r := newRig(t, Config{})
	raw := "Date: Mon, 1 Oct 2018 10:00:00 +0000\nSubject: In\n\n" + strings.Repeat("ü\n", 10)
	const dateHeader = "1538388000000"
	padded, bare := base64.URLEncoding.EncodeToString([]byte(raw)), base64.RawURLEncoding.EncodeToString([]byte(raw))
	related := "--x\r\nContent-Type: application/json\r\n\r\n{\"labelIds\":[\"STARRED\"]}\r\n--x\r\nContent-Type: message/rfc822\r\n\r\n" + raw + "\r\n--x--"
	for name, c := range map[string]struct {
		path, media string
		body        any
		dated       bool
		labels      []string
	}{
		"insert":            {"messages", "", map[string]any{"raw": padded, "labelIds": []string{"INBOX"}}, false, []string{"INBOX"}},
		"insert, dated":     {"messages?internalDateSource=dateHeader", "", map[string]any{"raw": bare}, true, nil},
		"import":            {"messages/import?neverMarkSpam=true", "", map[string]any{"raw": bare}, true, nil},
		"import, now":       {"messages/import?internalDateSource=receivedTime", "", map[string]any{"raw": bare}, false, nil},
		"upload":            {"/upload/gmail/v1/users/me/messages?uploadType=media", "message/rfc822", []byte(raw), false, nil},
		"upload in 2 parts": {"/upload/gmail/v1/users/me/messages/import?uploadType=multipart", "multipart/related; boundary=x", []byte(related), true, []string{"STARRED"}},
	} {
		w := r.do("POST", c.path, c.body, "Content-Type", c.media)
		m := decode[resource](t, w.Body.Bytes())
		full := decode[resource](t, r.ok("GET", "messages/"+m.ID+"?format=raw", nil))
		if got, _ := base64.URLEncoding.DecodeString(full.Raw); string(got) != raw {
			t.Errorf("%s: raw differs: %q", name, got)
		}
		if (full.InternalDate == dateHeader) != c.dated || !slices.Equal(full.LabelIDs, c.labels) {
			t.Errorf("%s: date %s, labels %v", name, full.InternalDate, full.LabelIDs)
		}
	}
	for _, media := range []string{"", "text/plain", "multipart/related; boundary=y"} {
		if w := r.do("POST", "/upload/gmail/v1/users/me/messages", []byte(related), "Content-Type", media); w.Code != 400 {
			t.Errorf("upload of %q: %d", media, w.Code)
		}
	}
}

func TestSentMailReachesOtherAccounts(t *testing.T) {
	r := newRig(t, Config{})
	r.s.AddAccount("bob@example.com")
	raw := []byte("To: Bob <Bob@example.com>, stranger@example.net\nCc: ann@example.com\nSubject: x\n\nx")
	sent := decode[resource](t, r.ok("POST", "messages/send", map[string]any{"raw": raw}))
	if !slices.Equal(sent.LabelIDs, []string{"INBOX", "SENT", "UNREAD"}) {
		t.Errorf("mail to oneself has labels %v", sent.LabelIDs)
	}
	if box := r.s.Mailbox("bob@example.com"); len(box) != 1 || string(box[0].Raw) != string(raw) {
		t.Errorf("the other account has %d messages", len(box))
	}
}

func TestNewMessagesJoinTheNamedThread(t *testing.T) {
	r := newRig(t, Config{})
	a := r.deliver("Plans", "a@x")
	insert := func(subject, thread string) any {
		return map[string]any{"raw": mailText(subject, subject), "threadId": thread}
	}
	if got := decode[resource](t, r.ok("POST", "messages", insert("Re: Plans", a.ThreadID))); got.ThreadID != a.ThreadID {
		t.Error("not in the thread")
	}
	if got := decode[resource](t, r.ok("POST", "messages", insert("Other", a.ThreadID))); got.ThreadID == a.ThreadID {
		t.Error("in the thread, with another subject")
	}
	r.fails(404, "notFound", "POST", "messages", insert("Plans", "1111111111111111"))
	r.fails(400, "invalidArgument", "POST", "messages", insert("Plans", "x"))
}

// Editing a draft gives its message a new id each time.
func TestDrafts(t *testing.T) {
	r := newRig(t, Config{})
	type draft struct {
		ID      string
		Message resource
	}
	body := func(text string) any {
		return map[string]any{"message": map[string]any{"raw": []byte("To: ann@example.com\nSubject: D\n\n" + text)}}
	}
	start := r.s.HistoryID(ann)
	first := decode[draft](t, r.ok("POST", "drafts", body("one")))
	second := decode[draft](t, r.ok("PUT", "drafts/"+first.ID, body("two")))
	if second.ID != first.ID || second.Message.ID == first.Message.ID || second.Message.ThreadID != first.Message.ThreadID {
		t.Errorf("before %+v, after %+v", first, second)
	}
	r.fails(404, "notFound", "GET", "messages/"+first.Message.ID, nil)
	got := decode[draft](t, r.ok("GET", "drafts/"+first.ID+"?format=full", nil))
	if got.Message.Snippet != "two" || !slices.Equal(got.Message.LabelIDs, []string{"DRAFT"}) {
		t.Errorf("got %+v", got)
	}
	list := decode[struct{ Drafts []draft }](t, r.ok("GET", "drafts", nil)).Drafts
	if len(list) != 1 || list[0].ID != first.ID || list[0].Message.ID != second.Message.ID {
		t.Errorf("list %+v", list)
	}
	sent := decode[resource](t, r.ok("POST", "drafts/send", map[string]any{"id": first.ID}))
	if sent.ThreadID != first.Message.ThreadID || sent.ID == second.Message.ID || !slices.Contains(sent.LabelIDs, "SENT") {
		t.Errorf("sent %+v", sent)
	}
	r.fails(404, "notFound", "POST", "drafts/send", map[string]any{"id": first.ID})
	if h := r.history(start, ""); len(h) != 5 {
		t.Errorf("history %v", h)
	}
	other := decode[draft](t, r.ok("POST", "drafts", body("three")))
	r.ok("DELETE", "drafts/"+other.ID, nil)
	r.fails(404, "notFound", "GET", "drafts/"+other.ID, nil)
}

func TestDraftsOfDeletedMessagesAreGone(t *testing.T) {
	r := newRig(t, Config{})
	d := decode[struct {
		ID      string
		Message resource
	}](t, r.ok("POST", "drafts", map[string]any{"message": map[string]any{"raw": []byte("x: y\n\nz")}}))
	r.ok("DELETE", "messages/"+d.Message.ID, nil)
	r.fails(404, "notFound", "GET", "drafts/"+d.ID, nil)
}

func TestLabels(t *testing.T) {
	r := newRig(t, Config{})
	a := r.deliver("a", "a@x")
	r.deliver("a", "b@x", "a@x")
	made := decode[label](t, r.ok("POST", "labels", map[string]any{"name": "Work", "labelListVisibility": "labelShow"}))
	if made.Type != "user" || made.LabelListVisibility != "labelShow" {
		t.Errorf("made %+v", made)
	}
	for _, c := range []struct {
		code               int
		reason, verb, path string
		body               any
	}{
		{409, "duplicate", "POST", "labels", map[string]any{"name": "work"}},
		{400, "invalidArgument", "POST", "labels", map[string]any{"name": "inbox"}},
		{400, "invalidArgument", "POST", "labels", map[string]any{"name": " "}},
		{400, "invalidArgument", "POST", "labels", map[string]any{}},
		{400, "invalidArgument", "POST", "labels", map[string]any{"name": "x", "labelListVisibility": "show"}},
		{400, "invalidArgument", "PUT", "labels/" + made.ID, map[string]any{}},
		{400, "invalidArgument", "DELETE", "labels/INBOX", nil},
		{404, "notFound", "PATCH", "labels/Label_9", map[string]any{"name": "x"}},
	} {
		r.fails(c.code, c.reason, c.verb, c.path, c.body)
	}
	r.ok("POST", "messages/"+a.ID+"/modify", map[string]any{"addLabelIds": []string{made.ID}, "removeLabelIds": []string{"UNREAD"}})
	want := fmt.Sprintf(`{"id":"%s","name":"Play","labelListVisibility":"labelShow","type":"user",`+
		`"messagesTotal":1,"messagesUnread":0,"threadsTotal":1,"threadsUnread":0}`, made.ID)
	r.ok("PATCH", "labels/"+made.ID, map[string]any{"name": "Play"})
	if got := string(r.ok("GET", "labels/"+made.ID, nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	inbox := decode[map[string]any](t, r.ok("GET", "labels/INBOX", nil))
	if inbox["messagesTotal"] != 2.0 || inbox["messagesUnread"] != 1.0 || inbox["threadsTotal"] != 1.0 {
		t.Errorf("inbox %v", inbox)
	}
	list := decode[struct{ Labels []label }](t, r.ok("GET", "labels", nil)).Labels
	if n := len(list); n != len(systemLabels)+1 || list[n-1].Name != "Play" || list[0].Type != "system" {
		t.Errorf("list %+v", list)
	}
	start := r.s.HistoryID(ann)
	r.ok("DELETE", "labels/"+made.ID, nil)
	if h := r.history(start, ""); len(h) != 1 || len(h[0].LabelsRemoved) != 1 {
		t.Errorf("history %v", h)
	}
	if got := r.labels(a.ID); !slices.Equal(got, []string{"INBOX"}) {
		t.Errorf("labels %v", got)
	}
}
