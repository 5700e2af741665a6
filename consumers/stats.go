package consumers

import "time"

// Stats counts what a Runner did since it was made, and what it holds now.
type Stats struct {
	Handled     int64 // calls of the handler
	Requeued    int64 // denied or throttled, brought back after the wait
	Retried     int64 // failed, brought back after a backoff
	Dropped     int64 // dead letters
	Postponed   int64 // waits written to the database
	Folded      int64 // deliveries that another of the same key stood for
	Undecodable int64 // messages that were no job

	Ready   int           // waiting for a slot
	Parked  int           // waiting in the lot
	Working int           // in a slot
	Oldest  time.Duration // the longest that a ready or parked job has waited since it was delivered or last worked
}

// Waiting is what one account has ready or parked.
type Waiting struct {
	Count   int
	Longest time.Duration
}

// Stats returns the counts.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, now := r.counts, time.Now()
	for _, e := range r.board.entries {
		switch e.state {
		case working:
			s.Working++
			continue
		case parked:
			s.Parked++
		case ready:
			s.Ready++
		}
		s.Oldest = max(s.Oldest, now.Sub(e.since))
	}
	return s
}

// Waiting returns what waits, by account id.
func (r *Runner) Waiting() map[string]Waiting {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, now := map[string]Waiting{}, time.Now()
	for _, e := range r.board.entries {
		if e.state == working {
			continue
		}
		w := out[e.job.Account]
		w.Count++
		w.Longest = max(w.Longest, now.Sub(e.since))
		out[e.job.Account] = w
	}
	return out
}

func (r *Runner) count(add func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.counts)
}
