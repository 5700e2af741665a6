package gmailsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type historyChange struct {
	Message struct {
		ID, ThreadID string
		LabelIDs     []string
	}
	LabelIDs []string
}

type historyRecord struct {
	ID                                                         string
	Messages                                                   []struct{ ID, ThreadID string }
	MessagesAdded, MessagesDeleted, LabelsAdded, LabelsRemoved []historyChange
}

// String writes a record as "+id", "-id", "id+LABEL" or "id-LABEL".
func (h historyRecord) String() string {
	var s []string
	for _, c := range h.MessagesAdded {
		s = append(s, "+"+c.Message.ID)
	}
	for _, c := range h.MessagesDeleted {
		s = append(s, "-"+c.Message.ID)
	}
	for _, c := range h.LabelsAdded {
		s = append(s, c.Message.ID+"+"+strings.Join(c.LabelIDs, ","))
	}
	for _, c := range h.LabelsRemoved {
		s = append(s, c.Message.ID+"-"+strings.Join(c.LabelIDs, ","))
	}
	return strings.Join(s, " ")
}

// history reads all records after start.
func (r *rig) history(start uint64, params string) []historyRecord {
	r.t.Helper()
	var all []historyRecord
	for token := ""; ; {
		p := decode[struct {
			History                  []historyRecord
			NextPageToken, HistoryID string
		}](r.t, r.ok("GET", fmt.Sprintf("history?startHistoryId=%d%s&pageToken=%s", start, params, token), nil))
		if want := formatID(r.s.HistoryID(ann)); p.HistoryID != want {
			r.t.Errorf("historyId %s, want the mailbox's current %s", p.HistoryID, want)
		}
		all = append(all, p.History...)
		if token = p.NextPageToken; token == "" {
			return all
		}
	}
}

func TestHistoryTellsEachChangeOnce(t *testing.T) {
	r := newRig(t, Config{})
	start := r.s.HistoryID(ann)
	m := r.deliver("a", "a@x")
	must(r.s.Label(ann, m.ID, []string{"STARRED", "INBOX"}, []string{"UNREAD", "SENT"}))(t)
	must(r.s.Trash(ann, m.ID))(t)
	must(r.s.Untrash(ann, m.ID))(t)
	must(r.s.Untrash(ann, m.ID))(t)
	must(r.s.Delete(ann, m.ID))(t)
	var got []string
	for _, h := range r.history(start, "&maxResults=2") {
		got = append(got, h.String())
		if len(h.Messages) != 1 || h.Messages[0].ID != m.ID {
			t.Errorf("record %v names %v", h, h.Messages)
		}
	}
	want := []string{"+", "+STARRED", "-UNREAD", "+TRASH", "-INBOX", "-TRASH", "-"}
	for i := range want {
		want[i] = m.ID + want[i]
	}
	want[0], want[6] = "+"+m.ID, "-"+m.ID
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// relaticle/relaticle#612: the parameter is spelled differently from the answer.
func TestHistoryFilters(t *testing.T) {
	r := newRig(t, Config{})
	start := r.s.HistoryID(ann)
	m := r.deliver("a", "a@x")
	gone := must(r.s.AddLabel(ann, "gone"))(t)
	must(r.s.Label(ann, m.ID, []string{gone}, nil))(t)
	if got := r.history(start, "&historyTypes=labelAdded&historyTypes=messageDeleted"); len(got) != 1 || len(got[0].LabelsAdded) != 1 {
		t.Errorf("got %v", got)
	}
	if got := r.history(start, "&labelId="+gone); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	r.fails(400, "invalidArgument", "GET", fmt.Sprintf("history?startHistoryId=%d&historyTypes=labelsAdded", start), nil)
	r.ok("DELETE", "labels/"+gone, nil)
	// rtCamp/frappe-gmail-thread#28: a deleted label gives 404 although the id is valid.
	r.fails(404, "notFound", "GET", fmt.Sprintf("history?startHistoryId=%d&labelId=%s", start, gone), nil)
}

// gauteh/lieer#203: ids below the retention floor are 404, also those found on messages.
func TestHistoryBelowTheFloorIsNotFound(t *testing.T) {
	r := newRig(t, Config{})
	start := r.s.HistoryID(ann)
	m := r.deliver("a", "a@x")
	r.ok("GET", fmt.Sprintf("history?startHistoryId=%d", start), nil)
	if err := r.s.ExpireHistory(ann); err != nil {
		t.Fatal(err)
	}
	r.fails(404, "notFound", "GET", fmt.Sprintf("history?startHistoryId=%d", start), nil)
	r.ok("GET", fmt.Sprintf("history?startHistoryId=%d", m.HistoryID), nil) // it is the current id
	must(r.s.Trash(ann, m.ID))(t)
	if err := r.s.ExpireHistory(ann); err != nil {
		t.Fatal(err)
	}
	r.fails(404, "notFound", "GET", fmt.Sprintf("history?startHistoryId=%d", m.HistoryID), nil)
	for _, start := range []string{"", "x", "-1", "1.5"} {
		r.fails(400, "invalidArgument", "GET", "history?startHistoryId="+start, nil)
	}
	r.fails(404, "notFound", "GET", "history?startHistoryId=99999999999", nil)
}

func TestHistoryExpiresByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{HistoryRetention: time.Hour, TokenTTL: 24 * time.Hour})
		start := r.s.HistoryID(ann)
		old := r.deliver("a", "a@x")
		time.Sleep(40 * time.Minute)
		r.deliver("b", "b@x")
		time.Sleep(30 * time.Minute)
		r.fails(404, "notFound", "GET", fmt.Sprintf("history?startHistoryId=%d", start), nil)
		if got := r.history(old.HistoryID, ""); len(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
}

// Loading is the mailbox's past: no history, and no id from before it goes on as if nothing had happened.
func TestLoadingIsSilent(t *testing.T) {
	r := newRig(t, Config{})
	before := r.s.HistoryID(ann)
	m := must(r.s.Load(ann, []byte("Date: Mon, 1 Oct 2018 10:00:00 +0200\n\nx"), []string{}...))(t)
	if got := r.history(r.s.HistoryID(ann), ""); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	r.fails(404, "notFound", "GET", fmt.Sprintf("history?startHistoryId=%d", before), nil)
	got := decode[resource](t, r.ok("GET", "messages/"+m.ID, nil))
	if want := formatID(uint64(time.Date(2018, 10, 1, 8, 0, 0, 0, time.UTC).UnixMilli())); got.InternalDate != want {
		t.Errorf("internalDate %s, want that of the Date header, %s", got.InternalDate, want)
	}
}

// A change moves the history id of the message and of its thread; a deletion that of the thread.
func TestHistoryIDsOfMessagesAndThreads(t *testing.T) {
	r := newRig(t, Config{})
	a := r.deliver("a", "a@x")
	b := r.deliver("a", "b@x", "a@x")
	thread := func() (id string, messages []string) {
		got := decode[struct {
			HistoryID string
			Messages  []resource
		}](t, r.ok("GET", "threads/"+a.ThreadID, nil))
		for _, m := range got.Messages {
			messages = append(messages, m.HistoryID)
		}
		return got.HistoryID, messages
	}
	id, messages := thread()
	if want := []string{formatID(a.HistoryID), formatID(b.HistoryID)}; id != want[1] || !slices.Equal(messages, want) {
		t.Errorf("got %s %v, want %v", id, messages, want)
	}
	changed := must(r.s.Label(ann, a.ID, []string{"STARRED"}, nil))(t)
	if id, messages = thread(); id != formatID(changed) || messages[0] != id || messages[1] != formatID(b.HistoryID) {
		t.Errorf("after a label change at %d: %s %v", changed, id, messages)
	}
	deleted := must(r.s.Delete(ann, b.ID))(t)
	if id, messages = thread(); id != formatID(deleted) || len(messages) != 1 || messages[0] != formatID(changed) {
		t.Errorf("after a deletion at %d: %s %v", deleted, id, messages)
	}
	must(r.s.Delete(ann, a.ID))(t)
	r.fails(404, "notFound", "GET", "threads/"+a.ThreadID, nil)
}

// googleworkspace/python-samples#200: an account soon passes from 999 to 1000, where comparing text goes wrong.
func TestHistoryIDsPassAPowerOfTen(t *testing.T) {
	r := newRig(t, Config{})
	if r.s.HistoryID(ann) > 999 {
		t.Fatal("a new mailbox begins above 999")
	}
	for i := range 40 {
		r.deliver("a", fmt.Sprint(i, "@x"))
	}
	if r.s.HistoryID(ann) < 1000 {
		t.Error("40 messages do not reach 1000")
	}
}
