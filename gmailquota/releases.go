package gmailquota

import (
	"context"
	"maps"
	"sync"
	"time"
)

// releaseDelay is how long the end of a call waits for a decision to ride on, where others may want its slot: long enough
// that a busy user's always does, short enough that other processes do not miss the slot for long.
const releaseDelay = time.Second

// releases holds the ids of calls that ended until Redis is told, or they have lapsed there.
type releases struct {
	now  func() time.Time
	due  func() // flushes what is urgent; called by a timer
	send func(ctx context.Context, ended map[string]ended) error

	mu      sync.Mutex
	waiting map[string]ended // by account
	timer   bool             // a flush is due
	sweepAt int
}

// ended are calls of an account.
type ended struct {
	ids    string // one after the other
	since  time.Time
	urgent bool // others may want their slots: see signBusy
}

func (e ended) lapsed(now time.Time) bool { return now.Sub(e.since) > leaseUS*time.Microsecond }

// add notes that calls ended: none, one, or several.
func (r *releases) add(account, ids string, urgent bool) { r.put(account, ended{ids, r.now(), urgent}) }

// put notes calls that ended, or takes back what take gave out. What could not be told for 10 s has lapsed meanwhile.
func (r *releases) put(account string, e ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(account, e)
}

func (r *releases) putLocked(account string, e ended) {
	now := r.now()
	if e.ids == "" || e.lapsed(now) {
		return
	}
	if r.waiting == nil {
		r.waiting = map[string]ended{}
	}
	if old, ok := r.waiting[account]; ok && !old.lapsed(now) {
		e.ids, e.urgent = old.ids+e.ids, e.urgent || old.urgent
		if old.since.Before(e.since) {
			e.since = old.since
		}
	}
	r.waiting[account] = e
	if len(r.waiting) >= r.sweepAt {
		maps.DeleteFunc(r.waiting, func(_ string, e ended) bool { return e.lapsed(now) })
		r.sweepAt = max(2*len(r.waiting), 100)
	}
	if e.urgent && !r.timer {
		r.timer = true
		time.AfterFunc(releaseDelay, r.due)
	}
}

// take hands out an account's calls for a decision to carry. If that fails they are put back.
func (r *releases) take(account string) ended {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.waiting[account]
	if ok {
		delete(r.waiting, account)
	}
	return e
}

// flush sends all, or what is urgent. What Redis was perhaps not told is tried again.
func (r *releases) flush(ctx context.Context, urgent bool) error {
	r.mu.Lock()
	now, all := r.now(), map[string]ended{}
	for account, e := range r.waiting {
		if e.urgent || !urgent {
			delete(r.waiting, account)
			if !e.lapsed(now) {
				all[account] = e
			}
		}
	}
	if urgent {
		r.timer = false
	}
	r.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	err := r.send(ctx, all)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for account, e := range all {
			r.putLocked(account, e)
		}
	}
	return err
}
