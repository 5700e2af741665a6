package modeltest

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// Check runs sequences over a store until one fails, and reports the shortest that does. open makes an empty store within
// the bubble of virtual time, and a function that ends it. GMAILSYNC_SEQUENCES replaces the number of sequences.
func Check(t *testing.T, sequences int, open func(t *testing.T) (consumertest.Fixture, func())) {
	t.Helper()
	if s := os.Getenv("GMAILSYNC_SEQUENCES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("GMAILSYNC_SEQUENCES: %v", err)
		}
		sequences = n
	}
	rapidly(t, sequences)
	rapid.Check(t, func(rt *rapid.T) {
		s := sequencesGen(rt)
		if err := Run(t, open, as, s); err != nil {
			rt.Fatalf("%v\nafter %s", err, s)
		}
	})
}

// rapidly sets how many sequences rapid makes; it leaves no file behind, as a failure names its seed.
func rapidly(t *testing.T, n int) {
	t.Helper()
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(n), "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

func sequencesGen(rt *rapid.T) Sequence { return sequences.Draw(rt, "sequence") }

// as leaves a store as it is.
func as(s consumers.Store) consumers.Store { return s }

// FoundAfter runs sequences over a store with a planted fault, and returns how many it took to find it; 0 says that limit
// sequences did not.
func FoundAfter(t *testing.T, limit int, open func(t *testing.T) (consumertest.Fixture, func()), plant func(consumers.Store) consumers.Store) int {
	t.Helper()
	for n := 1; n <= limit; n++ {
		if err := Run(t, open, plant, sequences.Example(n)); err != nil {
			return n
		}
	}
	return 0
}

// Run runs one sequence in a bubble of virtual time. plant wraps the store that the workers see.
func Run(t *testing.T, open func(t *testing.T) (consumertest.Fixture, func()), plant func(consumers.Store) consumers.Store, s Sequence) (err error) {
	t.Helper()
	err = errors.New("the sequence was cut short")
	synctest.Test(t, func(t *testing.T) {
		fixture, end := open(t)
		defer end()
		var w *world
		if w, err = newWorld(t, fixture, plant, s); err == nil {
			err = w.run()
		}
	})
	return err
}
