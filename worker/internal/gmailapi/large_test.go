package gmailapi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

// onyx-dot-app/onyx#5948: a thread of many messages is not read to its end; its outline and its messages one by one are.
func TestALargeThreadComesInPieces(t *testing.T) {
	r := newRig(t, gmailsim.Config{})
	text := strings.Repeat("A line of some length, of which there are many.\r\n", 1000)
	first := r.load(strings.Replace(mailOf("long", "m0"), "Hello.\r\n", text, 1))
	const n = 100
	for i := 1; i < n; i++ {
		mail := strings.Replace(mailOf("long", fmt.Sprint("m", i)), "Hello.\r\n", text, 1)
		r.load("In-Reply-To: <m0@example.com>\r\nReferences: <m0@example.com>\r\n" + mail)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.box.GetThread(t.Context(), first.ThreadID)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, consumers.ErrLargeThread) || consumers.FaultOf(err) != consumers.Permanent {
		t.Fatalf("a thread of 7 MB: %v", err)
	}
	t.Logf("%d kB allocated for the try, the simulator's included", (after.TotalAlloc-before.TotalAlloc)>>10)
	if calls := r.sim.Stats().Calls["threads.get"]; calls != 1 {
		t.Errorf("%d calls of threads.get, want 1: the same answer would come again", calls)
	}
	outline, err := r.box.ThreadOutline(t.Context(), first.ThreadID)
	if err != nil || !outline.Outline || len(outline.Messages) != n || outline.HistoryID == 0 {
		t.Fatalf("outline of %d messages, %v", len(outline.Messages), err)
	}
	for _, stub := range outline.Messages[:3] {
		m, err := r.box.GetMessage(t.Context(), stub.ID)
		if err != nil || m.Text != text || m.HistoryID != stub.HistoryID || stub.ThreadID != first.ThreadID {
			t.Errorf("message %+v: %v", stub, err)
		}
	}
	r.requireCharged()
}

// MemberJunction/MJ#2874: text that is handed out as an attachment is part of the body, also when an answer is cut off; a
// message is stored without it only if it is gone, and then says so.
func TestTextElsewhereThatFails(t *testing.T) {
	const method = "messages.attachments.get"
	for name, c := range map[string]struct {
		fault   gmailsim.Fault
		missing bool
		passing bool
	}{
		"cut once":      {fault: gmailsim.Fault{Cut: true}},
		"503 once":      {fault: gmailsim.Fault{Status: 503, Reason: "backendError"}},
		"always cut":    {fault: gmailsim.Fault{Cut: true, Times: -1}, passing: true},
		"gone":          {fault: gmailsim.Fault{Status: 404, Reason: "notFound", Times: -1}, missing: true},
		"not decodable": {fault: gmailsim.Fault{Status: 400, Reason: "invalidArgument", Times: -1}, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gmailsim.Config{InlineLimit: 100})
			long := strings.Repeat("A line of text.\r\n", 50)
			ref := r.load(strings.Replace(mailOf("long", "m1"), "Hello.\r\n", long, 1))
			c.fault.Method = method
			r.sim.AddFault(c.fault)
			m, err := r.box.GetMessage(t.Context(), ref.ID)
			switch {
			case c.passing:
				if err == nil || consumers.FaultOf(err) != consumers.Passing {
					t.Errorf("%v, want a passing fault: the message is fetched again", err)
				}
			case err != nil || m.BodyMissing != c.missing || (m.Text == long) == c.missing:
				t.Errorf("%d bytes of text, missing %v, %v", len(m.Text), m.BodyMissing, err)
			}
			r.requireCharged()
		})
	}
}

// onyx-dot-app/onyx#5948: a short thread whose texts come apart from it is large all the same; its messages come one by one.
func TestAThreadOfLargeTextsComesInPieces(t *testing.T) {
	r := newRig(t, gmailsim.Config{})
	text := strings.Repeat("A line of some length, of which there are many.\r\n", 50_000)
	first := r.load(strings.Replace(mailOf("long", "m0"), "Hello.\r\n", text, 1))
	if _, err := r.box.GetThread(t.Context(), first.ThreadID); err != nil {
		t.Errorf("one text of %d bytes: %v", len(text), err)
	}
	reply := strings.Replace(mailOf("long", "m1"), "Hello.\r\n", text+text, 1)
	r.load("In-Reply-To: <m0@example.com>\r\nReferences: <m0@example.com>\r\n" + reply)
	before := r.sim.Stats().Calls["messages.attachments.get"]
	if _, err := r.box.GetThread(t.Context(), first.ThreadID); !errors.Is(err, consumers.ErrLargeThread) {
		t.Errorf("texts of %d bytes in all: %v", 3*len(text), err)
	}
	if calls := r.sim.Stats().Calls["messages.attachments.get"] - before; calls != 0 {
		t.Errorf("%d texts fetched for nothing", calls)
	}
	r.requireCharged()
}

// A message whose answer is larger than what is held of one comes with its headers, and says that its body is missing; text
// above what the column takes is not fetched at all.
func TestAMessageThatIsTooLarge(t *testing.T) {
	text := strings.Repeat("A line of some length, of which there are many.\r\n", 420_000)
	for name, c := range map[string]struct {
		inline int
		gets   int64
	}{
		"in one answer": {inline: 64 << 20, gets: 2},
		"apart":         {gets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gmailsim.Config{InlineLimit: c.inline})
			ref := r.load(strings.Replace(mailOf("long", "m0"), "Hello.\r\n", text, 1))
			m, err := r.box.GetMessage(t.Context(), ref.ID)
			if err != nil || !m.BodyMissing || m.Text != "" || m.Subject == "" || len(m.Labels) == 0 || len(m.Raw) == 0 {
				t.Errorf("subject %q, %d bytes of text, missing %v, %v", m.Subject, len(m.Text), m.BodyMissing, err)
			}
			stats := r.sim.Stats().Calls
			if stats["messages.get"] != c.gets || stats["messages.attachments.get"] != 0 {
				t.Errorf("calls %v", stats)
			}
			r.requireCharged()
		})
	}
}

// Of the jobs that import, one at a time holds a large text; changes do not wait for it, and neither do small messages.
func TestLargeTextsAreHeldOneAtATime(t *testing.T) {
	r := newRig(t, gmailsim.Config{})
	large := r.load(strings.Replace(mailOf("large", "m0"), "Hello.\r\n", strings.Repeat("A line of text.\r\n", 100_000), 1))
	small := r.load(mailOf("small", "m1"))
	imports, err := r.client.Mailbox(t.Context(), account, gmailquota.Backfill)
	if err != nil {
		t.Fatal(err)
	}
	first, second := consumers.WithPlace(t.Context()), consumers.WithPlace(t.Context())
	if _, err := imports.GetMessage(first, large.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := imports.GetMessage(second, small.ID); err != nil {
		t.Errorf("a small message: %v", err)
	}
	if _, err := r.box.GetMessage(consumers.WithPlace(t.Context()), large.ID); err != nil {
		t.Errorf("a change: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := imports.GetThread(second, large.ThreadID)
		got <- err
	}()
	for r.sim.Stats().Calls["threads.get"] == 0 {
		runtime.Gosched()
	}
	if calls := r.sim.Stats().Calls["messages.attachments.get"]; calls != 2 {
		t.Errorf("%d texts fetched, want 2: the first is not stored yet", calls)
	}
	consumers.LetGo(first)
	if err := <-got; err != nil {
		t.Error(err)
	}
	r.requireCharged()
}

// A member that is no message resource fails neither its thread nor its neighbors: the thread comes in pieces.
func TestAThreadWithABadMemberComesInPieces(t *testing.T) {
	const head = `{"id":"1","historyId":"5","messages":[{"id":"1","historyId":"4"},`
	for _, c := range []struct {
		bad                  string
		messages, unreadable int
	}{
		{`{"id":"2","historyId":{}}`, 3, 0}, {`{"id":"2","labelIds":7}`, 3, 0}, {`{"id":2}`, 2, 1}, {`[]`, 2, 1}, {`"x"`, 2, 1}, {`null`, 2, 1}, {`{}`, 2, 1},
	} {
		base := &script{answers: []answer{{status: 200, body: head + c.bad + `,{"id":"3","historyId":"5"}]}`}}}
		client, err := New(Config{Endpoint: "http://gmail.test", Tokens: &numbered{}, Base: base})
		if err != nil {
			t.Fatal(err)
		}
		box := client.mailbox(account, gmailquota.Backfill)
		if _, err := box.GetThread(t.Context(), "1"); !errors.Is(err, consumers.ErrLargeThread) || base.calls != 1 {
			t.Errorf("%s: %v after %d calls", c.bad, err, base.calls)
		}
		outline, err := box.ThreadOutline(t.Context(), "1")
		if err != nil || len(outline.Messages) != c.messages || outline.Unreadable != c.unreadable {
			t.Errorf("%s: outline %+v, %v", c.bad, outline, err)
		}
	}
}
