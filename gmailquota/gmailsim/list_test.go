package gmailsim

import (
	"fmt"
	"slices"
	"testing"
)

type page struct {
	Threads, Messages  []struct{ ID, ThreadID, HistoryID, Snippet string }
	NextPageToken      string
	ResultSizeEstimate int
}

// list reads a whole list; between is called after each page.
func (r *rig) list(path string, between func()) (ids []string, pages int) {
	r.t.Helper()
	for token := ""; ; {
		p := decode[page](r.t, r.ok("GET", path+"&pageToken="+token, nil))
		pages++
		for _, row := range slices.Concat(p.Threads, p.Messages) {
			ids = append(ids, row.ID)
		}
		if token = p.NextPageToken; token == "" {
			return ids, pages
		}
		if between != nil {
			between()
		}
	}
}

// New mail, also in threads that the listing has yet to reach, neither repeats nor skips an entry.
func TestPagesSurviveArrivingMail(t *testing.T) {
	for _, kind := range []string{"threads", "messages"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, Config{})
			var want []string
			for i := range 57 {
				want = append(want, r.deliver(fmt.Sprint("subject ", i), fmt.Sprint(i, "@x")).ID)
			}
			slices.Reverse(want)
			n := 0
			got, pages := r.list(kind+"?maxResults=10", func() {
				n++
				r.deliver(fmt.Sprint("new ", n), fmt.Sprint("new", n, "@x"))
				reply := r.deliver(fmt.Sprint("re: subject ", n), fmt.Sprint("reply", n, "@x"), fmt.Sprint(n, "@x"))
				if reply.ThreadID != want[56-n] {
					t.Fatalf("the reply is not in the thread")
				}
			})
			if !slices.Equal(got, want) || pages != 6 {
				t.Errorf("%d pages: got %v, want %v", pages, got, want)
			}
		})
	}
}

func TestPagesSurviveDeletions(t *testing.T) {
	r := newRig(t, Config{})
	var ids []string
	for i := range 30 {
		ids = append(ids, r.deliver(fmt.Sprint("subject ", i), fmt.Sprint(i, "@x")).ID)
	}
	first := true
	got, _ := r.list("threads?maxResults=10", func() {
		if first { // the last of the first page and one to come
			must(r.s.Delete(ann, ids[20]))(t)
			must(r.s.Delete(ann, ids[5]))(t)
			first = false
		}
	})
	slices.Sort(got)
	want := slices.Delete(slices.Clone(ids), 5, 6)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("got %d threads, want %d: %v", len(got), len(want), got)
	}
}

func TestEmptyPagesHaveATokenAndLoseNothing(t *testing.T) {
	r := newRig(t, Config{EmptyPages: 2})
	for i := range 25 {
		r.deliver(fmt.Sprint("subject ", i), fmt.Sprint(i, "@x"))
	}
	for _, path := range []string{"threads?maxResults=10", "messages?maxResults=10"} {
		if ids, pages := r.list(path, nil); len(ids) != 25 || pages < 5 {
			t.Errorf("%s: %d entries on %d pages", path, len(ids), pages)
		}
	}

	r = newRig(t, Config{EmptyPages: 2})
	for i := range 25 {
		r.deliver(fmt.Sprint("subject ", i), fmt.Sprint(i, "@x"))
	}
	r.ok("GET", "threads", nil)
	empty := string(r.ok("GET", fmt.Sprintf("history?startHistoryId=%d", firstHistoryID), nil))
	p := decode[map[string]any](t, []byte(empty))
	if p["history"] != nil || p["nextPageToken"] == nil {
		t.Errorf("want a page without history: %s", empty)
	}
	if n := len(r.history(firstHistoryID, "&maxResults=7")); n != 25 {
		t.Errorf("%d records, want 25", n)
	}
}

func TestListsLeaveOutTrashAndSpamUnlessAsked(t *testing.T) {
	r := newRig(t, Config{})
	in, trash, spam := r.deliver("a", "a@x"), r.deliver("b", "b@x"), must(r.s.Deliver(ann, mailText("c", "c@x"), "SPAM"))(t)
	must(r.s.Trash(ann, trash.ID))(t)
	starred := must(r.s.AddLabel(ann, "Customers of ours"))(t)
	must(r.s.Label(ann, in.ID, []string{starred}, nil))(t)
	for query, want := range map[string][]string{
		"":                             {in.ID},
		"includeSpamTrash=false":       {in.ID},
		"includeSpamTrash=true":        {spam.ID, trash.ID, in.ID},
		"labelIds=TRASH":               {trash.ID},
		"labelIds=INBOX":               {in.ID},
		"labelIds=INBOX&labelIds=SENT": {},
		"q=in:trash":                   {trash.ID},
		"q=subject:a":                  {in.ID},
		"q=-subject:a":                 {},
		"q=from:bob+hello":             {in.ID},
		"q=%22hello, a@x%22":           {in.ID},
		"q=nowhere":                    {},
		"q=label:customers-of-ours":    {in.ID},
		"q=label:unknown":              {},
		"q=newer_than:1d":              {in.ID},
		"q=older_than:1d":              {},
		"q=after:2018/01/02":           {in.ID},
		"q=is:unread+in:inbox":         {in.ID},
		"q=has:attachment":             {},
		"q=rfc822msgid:a@x":            {in.ID},
	} {
		for _, kind := range []string{"threads", "messages"} {
			got, _ := r.list(kind+"?"+escapeSpaces(query), nil)
			if !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Errorf("%s?%s: got %v, want %v", kind, query, got, want)
			}
		}
	}
}

func escapeSpaces(s string) string {
	b := []byte{}
	for _, c := range []byte(s) {
		if c == ' ' {
			b = append(b, "%20"...)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func TestEmptyListHasNoArray(t *testing.T) {
	r := newRig(t, Config{})
	for kind, name := range map[string]string{"threads": "threads", "messages": "messages", "drafts": "drafts"} {
		if p := decode[map[string]any](t, r.ok("GET", kind, nil)); p[name] != nil || p["nextPageToken"] != nil {
			t.Errorf("%s: %v", kind, p)
		}
	}
}

// postalsys/emailengine#425: the estimate is only an estimate.
func TestEstimateIsWrong(t *testing.T) {
	r := newRig(t, Config{})
	r.deliver("a", "a@x")
	if p := decode[page](t, r.ok("GET", "threads", nil)); p.ResultSizeEstimate == len(p.Threads) {
		t.Error("the estimate is right, so that programs may come to rely on it")
	}
}

func TestPageTokenIsGoodForItsListOnly(t *testing.T) {
	r := newRig(t, Config{})
	for i := range 3 {
		r.deliver(fmt.Sprint(i), fmt.Sprint(i, "@x"))
	}
	token := decode[page](t, r.ok("GET", "threads?maxResults=1", nil)).NextPageToken
	r.ok("GET", "threads?maxResults=2&pageToken="+token, nil)
	for _, path := range []string{
		"threads?maxResults=1&q=a&pageToken=" + token, "messages?maxResults=1&pageToken=" + token,
		"threads?includeSpamTrash=true&pageToken=" + token, "threads?pageToken=x" + token, "threads?pageToken=abc",
	} {
		r.fails(400, "invalidArgument", "GET", path, nil)
	}
}

func TestThreadsFollowReferencesAndSubject(t *testing.T) {
	r := newRig(t, Config{})
	first := r.deliver("[list] Plans", "1@x")
	for name, c := range map[string]struct {
		ref  MessageRef
		same bool
	}{
		"reply":                {r.deliver("Re: [list] plans", "2@x", "1@x"), true},
		"reply to a reply":     {r.deliver("AW: Re: plans", "3@x", "0@x", "2@x"), true},
		"other subject":        {r.deliver("Other", "4@x", "1@x"), false},
		"no reference":         {r.deliver("Plans", "5@x"), false},
		"parent comes later":   {r.deliver("Plans", "0@x"), true},
		"reference is unknown": {r.deliver("Plans", "6@x", "99@x"), false},
	} {
		if (c.ref.ThreadID == first.ID) != c.same {
			t.Errorf("%s: thread %s, the first message is %s", name, c.ref.ThreadID, first.ID)
		}
	}
}
