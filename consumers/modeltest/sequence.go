package modeltest

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// Sequence is one course of events. It is plain data, so that a failure can be told, shortened and repeated.
type Sequence struct {
	Seed     uint64 // of the faults
	Threads  []int  // in each mailbox at the start
	Page     int    // of listings and history
	OldIDs   bool   // see consumertest.Mailbox.OldThreadIDs
	Embedded bool   // the queue lives in the process and is lost with it
	Second   bool   // a second worker is up from the start
	Gmail    int    // percent of Gmail's calls that fail
	DieAt    int    // the step at which the first worker dies; 0: at none
	Store    int    // percent of the store's calls that fail
	Events   []Event
}

// Event is something that happens to a mailbox or to a worker.
type Event struct {
	What    string
	Account int
	Pick    int           // which message, thread or worker
	Size    int           // how many, or after how many steps
	Push    string        // what becomes of Gmail's notification
	Then    time.Duration // until the next event
}

// The events. Those of the mailbox come more often.
var (
	mailboxEvents = []string{
		"deliver", "reply", "replies", "draft", "edit draft", "send", "label", "unlabel", "delete label", "trash", "untrash",
		"delete", "batch delete", "spam", "import", "flash",
	}
	workerEvents = []string{
		"kill", "kill", "kill", "restart", "second worker", "expire history", "revoke", "reconnect", "denials",
		"queue trouble", "resync",
	}
	pushes = []string{"once", "once", "twice", "lost", "late"}
)

func (s Sequence) String() string {
	events := s.Events
	head := s
	head.Events = nil
	type plain Sequence // without this method
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", plain(head))
	for i, e := range events {
		fmt.Fprintf(&b, "%3d %+v\n", i, e)
	}
	return b.String()
}

// even draws a number below n, each as likely as any other, where rapid's own numbers are mostly small. It shortens to 0.
func even(t *rapid.T, n int, label string) int {
	v := 0
	for range 12 {
		v *= 2
		if rapid.Bool().Draw(t, label) {
			v++
		}
	}
	return v * n >> 12
}

func oneOf[T any](t *rapid.T, label string, from ...T) T { return from[even(t, len(from), label)] }

var events = rapid.Custom(func(t *rapid.T) Event {
	kinds := mailboxEvents
	if even(t, 4, "of a worker") == 3 {
		kinds = workerEvents
	}
	return Event{
		What:    oneOf(t, "what", kinds...),
		Account: even(t, 2, "account"),
		Pick:    even(t, 50, "pick"),
		Size:    1 + even(t, 40, "size"),
		Push:    oneOf(t, "push", pushes...),
		Then:    time.Duration(oneOf(t, "then", 0, 50, 200, 700, 2000, 8000)) * time.Millisecond,
	}
})

// sequences makes random sequences.
var sequences = rapid.Custom(func(t *rapid.T) Sequence {
	return Sequence{
		Seed:     rapid.Uint64().Draw(t, "seed"),
		Threads:  oneOf(t, "threads", []int{2}, []int{0, 12}, []int{5, 3}, []int{11, 9}),
		Page:     2 + even(t, 7, "page"),
		OldIDs:   rapid.Bool().Draw(t, "old ids"),
		Embedded: rapid.Bool().Draw(t, "embedded"),
		Second:   rapid.Bool().Draw(t, "second"),
		Gmail:    oneOf(t, "gmail faults", 0, 10, 10),
		Store:    oneOf(t, "store faults", 0, 0, 3),
		Events:   rapid.SliceOfN(events, oneOf(t, "events", 0, 5, 10, 20, 30), 40).Draw(t, "events"),
	}
})
