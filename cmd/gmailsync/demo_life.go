package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

// The average time between two changes of one mailbox.
const (
	lifePause = 2 * time.Second  // while it is imported
	slowPause = 10 * time.Second // afterwards, so that the screen can be read
)

// life changes one simulated mailbox the way its owner and the world do: new mail, labels, trash, deletion.
type life struct {
	sim     *gmailsim.Server
	address string
	pause   time.Duration         // between two changes, on average
	mail    [][]byte              // to be delivered, round and round
	old     []gmailsim.MessageRef // of the past: relabelled and trashed, never deleted
	own     []gmailsim.MessageRef // delivered here: deleted as well
	rand    *rand.Rand
	changed func(change)
	sent    int
}

// run makes a change every now and then until ctx ends.
func (l *life) run(ctx context.Context) error {
	for {
		pause := time.NewTimer(l.pause/2 + time.Duration(l.rand.Int64N(int64(l.pause))))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		if err := l.step(time.Now()); err != nil {
			return fmt.Errorf("simulated mailbox: %w", err)
		}
	}
}

func (l *life) step(now time.Time) error {
	what, do := "deleted", l.remove
	switch n := l.rand.IntN(10); {
	case n < 5 || len(l.own) == 0:
		what, do = "new mail", l.deliver
	case n < 7:
		what, do = "relabelled", l.relabel
	case n < 9:
		what, do = "trashed", l.trash
	}
	before := l.sim.HistoryID(l.address)
	id, err := do()
	if err == nil && id > before { // a label that was there already is no change
		l.changed(change{what: what, historyID: id, at: now})
	}
	return err
}

func (l *life) deliver() (uint64, error) {
	raw := l.mail[l.sent%len(l.mail)]
	l.sent++
	ref, err := l.sim.Deliver(l.address, raw)
	if err == nil {
		l.own = append(l.own, ref)
	}
	return ref.HistoryID, err
}

func (l *life) relabel() (uint64, error) {
	add, remove := []string{"STARRED"}, []string{"UNREAD"}
	if l.rand.IntN(2) == 0 {
		add, remove = remove, add
	}
	return l.sim.Label(l.address, l.pick().ID, add, remove)
}

func (l *life) trash() (uint64, error) {
	return l.sim.Trash(l.address, l.pick().ID)
}

func (l *life) remove() (uint64, error) {
	i := l.rand.IntN(len(l.own))
	id, err := l.sim.Delete(l.address, l.own[i].ID)
	if err == nil {
		l.own = slices.Delete(l.own, i, i+1)
	}
	return id, err
}

func (l *life) pick() gmailsim.MessageRef {
	i := l.rand.IntN(len(l.old) + len(l.own))
	if i < len(l.old) {
		return l.old[i]
	}
	return l.own[i-len(l.old)]
}

// stopwatch measures the time from a change in a mailbox to its being stored: the moment at which the account's
// cursor has passed the change's history id. Safe for concurrent use.
type stopwatch struct {
	stored func(account string, c change, took time.Duration) // called for each change, without the lock

	mu      sync.Mutex
	cursor  map[string]uint64   // by account id
	waiting map[string][]change // by account id
	last    map[string]time.Duration
	took    []time.Duration
}

type change struct {
	what      string
	historyID uint64
	at        time.Time
}

func newStopwatch(stored func(string, change, time.Duration)) *stopwatch {
	return &stopwatch{
		stored: stored, cursor: map[string]uint64{}, waiting: map[string][]change{}, last: map[string]time.Duration{},
	}
}

// start notes a change that has just happened.
func (s *stopwatch) start(account string, c change) {
	s.mu.Lock()
	s.waiting[account] = append(s.waiting[account], c)
	cursor := s.cursor[account]
	s.mu.Unlock()
	s.passed(account, cursor, time.Now()) // the worker may have been faster than the caller
}

// passed notes that an account's cursor is at historyID: every change up to it is stored.
func (s *stopwatch) passed(account string, historyID uint64, now time.Time) {
	s.mu.Lock()
	s.cursor[account] = max(s.cursor[account], historyID)
	var done []change
	s.waiting[account] = slices.DeleteFunc(s.waiting[account], func(c change) bool {
		if c.historyID > historyID {
			return false
		}
		done = append(done, c)
		s.took = append(s.took, now.Sub(c.at))
		s.last[account] = now.Sub(c.at)
		return true
	})
	s.mu.Unlock()
	for _, c := range done {
		s.stored(account, c, now.Sub(c.at))
	}
}

// open counts the changes that are not stored yet.
func (s *stopwatch) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.waiting {
		n += len(w)
	}
	return n
}

// latest returns how long the account's last change took; ok is false before the first.
func (s *stopwatch) latest(account string) (took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took, ok = s.last[account]
	return took, ok
}

// report sums up what was measured so far.
func (s *stopwatch) report() reportRealtime {
	s.mu.Lock()
	sorted := slices.Sorted(slices.Values(s.took))
	s.mu.Unlock()
	if len(sorted) == 0 {
		return reportRealtime{}
	}
	// The q-quantile is the smallest value that at least q of all values do not exceed.
	quantile := func(hundredths int) float64 {
		i := (len(sorted)*hundredths+99)/100 - 1
		return float64(sorted[i].Microseconds()) / 1000
	}
	return reportRealtime{Changes: len(sorted), P50: quantile(50), P99: quantile(99)}
}
