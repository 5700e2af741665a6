package consumertest

import (
	"context"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// AddDeadLetter implements consumers.Store.
func (s *Store) AddDeadLetter(ctx context.Context, d consumers.DeadLetter) error {
	return s.inAccount(ctx, "AddDeadLetter", d.Account, func(a *account) error {
		s.bury(a, d)
		return nil
	})
}

// bury adds a letter, or brings the one about the same work up to date.
func (s *Store) bury(a *account, d consumers.DeadLetter) {
	same := slices.IndexFunc(a.dead, func(old consumers.DeadLetter) bool {
		return old.ThreadID == d.ThreadID && old.MessageID == d.MessageID &&
			(d.ThreadID != "" || d.MessageID != "" || old.Kind == d.Kind && old.Run == d.Run)
	})
	if same >= 0 {
		d.ID = a.dead[same].ID
		a.dead[same] = d
		return
	}
	d.ID = s.newID()
	a.dead = append(a.dead, d)
}

// incomplete counts the threads and messages that were given up.
func (a *account) incomplete() int {
	n := 0
	for _, d := range a.dead {
		if d.ThreadID != "" {
			n++
		}
	}
	return n
}

func (a *account) dropThreadLetters(threadID string) {
	a.dead = slices.DeleteFunc(a.dead, func(d consumers.DeadLetter) bool { return d.ThreadID == threadID })
}

// dropMessageLetters removes the letters of messages that are stored, or known to be deleted.
func (a *account) dropMessageLetters() {
	a.dead = slices.DeleteFunc(a.dead, func(d consumers.DeadLetter) bool {
		if d.MessageID == "" || a.messages[d.MessageID] == nil {
			return false
		}
		for _, th := range a.threads {
			if th.wants[d.MessageID] > 0 {
				return false
			}
		}
		return true
	})
}

// take removes letters and returns them.
func (a *account) take(ids []int64) []consumers.DeadLetter {
	var taken, kept []consumers.DeadLetter
	for _, d := range a.dead {
		if slices.Contains(ids, d.ID) {
			taken = append(taken, d)
		} else {
			kept = append(kept, d)
		}
	}
	a.dead = kept
	return taken
}

// DropDeadLetters implements consumers.Store.
func (s *Store) DropDeadLetters(ctx context.Context, id string, ids []int64) (int, error) {
	n := 0
	err := s.inAccount(ctx, "DropDeadLetters", id, func(a *account) error {
		n = len(a.take(ids))
		return nil
	})
	return n, err
}

// ReplayDeadLetters implements consumers.Store.
func (s *Store) ReplayDeadLetters(ctx context.Context, id string, ids []int64, batchSize int, now time.Time) (int, error) {
	n := 0
	err := s.inAccount(ctx, "ReplayDeadLetters", id, func(a *account) error {
		a.dropMessageLetters()
		var threads []string
		for _, d := range a.take(ids) {
			switch {
			case d.MessageID != "":
				n++
				a.fetches[d.MessageID] = consumers.Fetch{MessageID: d.MessageID, ThreadID: d.ThreadID, Due: now, Cause: "replayed",
					HistoryID: a.thread(d.ThreadID).wants[d.MessageID]}
				if a.due.After(now) {
					a.due = now
				}
			case d.ThreadID == "":
				n++
				a.release()
			case a.threads[d.ThreadID] == nil || !a.threads[d.ThreadID].complete:
				n++
				threads = append(threads, d.ThreadID)
			}
		}
		return s.replayThreads(a, threads, batchSize, now)
	})
	return n, err
}

// replayThreads gives threads to the active run, or to a run of their own; an account whose listing is to come gets them from
// it.
func (s *Store) replayThreads(a *account, threads []string, batchSize int, now time.Time) error {
	if len(threads) == 0 {
		return nil
	}
	if a.active == nil {
		if a.Cursor == 0 || a.State == consumers.Importing || a.State == consumers.Resyncing {
			return nil
		}
		a.active = &run{
			Run: consumers.Run{ID: s.newRunID(), Account: a.ID, Kind: consumers.RunReplay, Baseline: a.Cursor, Listed: true, AbsentQueued: true},
			due: now, threads: map[string]*runThread{}, batches: map[int64]*batch{},
		}
		s.runs[a.active.ID] = a.active
	}
	r := a.active
	r.due = now
	var fetch []string
	for _, id := range threads {
		switch rt := r.threads[id]; {
		case rt == nil:
			r.Progress.Listed++
		case rt.state == "failed":
			r.Progress.Failed--
		default:
			continue
		}
		r.threads[id] = &runThread{state: "open"}
		fetch = append(fetch, id)
	}
	return s.addBatches(r, fetch, batchSize)
}
