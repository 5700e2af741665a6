package modeltest

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// Open makes an empty store within the bubble of virtual time, and a function that ends it.
type Open func(t *testing.T) (f consumertest.Fixture, end func())

// Plant puts a fault between the consumers and their ports, to show that the model finds it. A nil function plants nothing.
type Plant struct {
	Store     func(consumers.Store) consumers.Store
	Mailboxes func(consumers.Mailboxes) consumers.Mailboxes
}

// Check runs random sequences over a store until one fails, and reports the shortest that does. GMAILSYNC_SEQUENCES, if
// set, is how many.
func Check(t *testing.T, count int, open Open) {
	t.Helper()
	if s := os.Getenv("GMAILSYNC_SEQUENCES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("GMAILSYNC_SEQUENCES: %v", err)
		}
		count = n
	}
	// No file is left behind: a failure names its seed.
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(count), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := sequences.Draw(rt, "sequence")
		if err := Run(t, open, Plant{}, s); err != nil {
			rt.Fatalf("%v\nafter %s", err, s)
		}
	})
}

// FoundAfter returns how many sequences, always the same, it takes to find a planted fault, and what was found; 0 if limit
// of them find nothing.
func FoundAfter(t *testing.T, limit int, open Open, plant Plant) (n int, found error) {
	t.Helper()
	for n := 1; n <= limit; n++ {
		if err := Run(t, open, plant, sequences.Example(n)); err != nil {
			return n, err
		}
	}
	return 0, nil
}

// life is an import, changes that come by history, and a resync.
var life = Sequence{Threads: []int{5}, Page: 3, Events: []Event{
	{What: "label", Pick: 2, Then: 10 * time.Second},
	{What: "deliver", Push: "once"},
	{What: "replies", Pick: 3, Size: 2, Push: "once"},
	{What: "reply", Pick: 0, Push: "once"},
	{What: "trash", Pick: 1, Push: "once"},
	{What: "edit draft", Pick: 5, Push: "once"},
	{What: "flash", Pick: 4, Push: "once"},
	{What: "delete", Pick: 6, Push: "once", Then: 10 * time.Second},
	{What: "deliver", Push: "lost"},
	{What: "batch delete", Pick: 1, Size: 3, Push: "lost"},
	{What: "spam", Pick: 4, Push: "lost"},
	{What: "expire history"},
	{What: "reply", Pick: 2, Push: "once", Then: 10 * time.Second},
}}

// CrashPoints runs a life of import, changes and resync again and again, each time with the process killed at another of its
// steps: before and after each call of the store and of Gmail, each publishing and each ack. It returns the steps' names.
func CrashPoints(t *testing.T, embedded bool, open Open) (names []string) {
	t.Helper()
	s := life
	s.Embedded = embedded
	steps := 0
	whole := run(t, open, Plant{}, s, func(w *world) {
		steps, names = w.workers[0].p.steps()
	})
	if whole != nil {
		t.Fatalf("without a crash: %v", whole)
	}
	for s.DieAt = 1; s.DieAt <= steps; s.DieAt++ {
		if err := Run(t, open, Plant{}, s); err != nil {
			t.Fatalf("killed at step %d of %d: %v", s.DieAt, steps, err)
		}
	}
	t.Logf("%d crash points", steps)
	return names
}

// Run runs one sequence in a bubble of virtual time. The error says what of the end is wrong.
func Run(t *testing.T, open Open, plant Plant, s Sequence) error {
	t.Helper()
	return run(t, open, plant, s, func(*world) {})
}

func run(t *testing.T, open Open, plant Plant, s Sequence, rested func(*world)) error {
	t.Helper()
	err := errors.New("the sequence was cut short")
	synctest.Test(t, func(t *testing.T) {
		fixture, end := open(t)
		defer end()
		var w *world
		if w, err = newWorld(t, fixture, plant, s); err == nil {
			err = w.run(rested)
		}
	})
	return err
}
