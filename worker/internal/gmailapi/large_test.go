package gmailapi

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
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
