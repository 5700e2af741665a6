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
		"kill", "kill", "kill", "restart", "second worker", "expire history", "revoke", "reconnect", "denials", "queue trouble", "resync",
	}
	pushes = []string{"once", "once", "twice", "lost", "late"}
)

func (s Sequence) String() string {
	var b strings.Builder
	events := s.Events
	s.Events = nil
	fmt.Fprintf(&b, "%+v\n", struct {
		Seed                    uint64
		Threads                 []int
		Page                    int
		OldIDs, Embedded, Sec   bool
		GmailFaults, StoreFault int
	}{s.Seed, s.Threads, s.Page, s.OldIDs, s.Embedded, s.Second, s.Gmail, s.Store})
	for i, e := range events {
		fmt.Fprintf(&b, "%3d %+v\n", i, e)
	}
	return b.String()
}

var events = rapid.Custom(func(t *rapid.T) Event {
	kinds := mailboxEvents
	if rapid.IntRange(0, 3).Draw(t, "of a worker") == 3 {
		kinds = workerEvents
	}
	return Event{
		What:    rapid.SampledFrom(kinds).Draw(t, "what"),
		Account: rapid.IntRange(0, 1).Draw(t, "account"),
		Pick:    rapid.IntRange(0, 50).Draw(t, "pick"),
		Size:    rapid.IntRange(1, 40).Draw(t, "size"),
		Push:    rapid.SampledFrom(pushes).Draw(t, "push"),
		Then:    time.Duration(rapid.SampledFrom([]int{0, 50, 200, 700, 2000, 8000}).Draw(t, "then")) * time.Millisecond,
	}
})

// sequences makes random sequences.
var sequences = rapid.Custom(func(t *rapid.T) Sequence {
	return Sequence{
		Seed:     rapid.Uint64().Draw(t, "seed"),
		Threads:  rapid.SliceOfN(rapid.IntRange(0, 12), 1, 2).Draw(t, "threads"),
		Page:     rapid.IntRange(2, 8).Draw(t, "page"),
		OldIDs:   rapid.Bool().Draw(t, "old ids"),
		Embedded: rapid.Bool().Draw(t, "embedded"),
		Second:   rapid.Bool().Draw(t, "second"),
		Gmail:    rapid.SampledFrom([]int{0, 10, 10}).Draw(t, "gmail faults"),
		Store:    rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "store faults"),
		Events:   rapid.SliceOfN(events, 0, 40).Draw(t, "events"),
	}
})
