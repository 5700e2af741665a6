package gmailquota

import (
	"context"
	"sync"
	"time"
)

// releaseDelay is how long the end of a call waits for a decision to ride on: long enough that a busy user's always
// does, short enough that other processes do not miss the slot for long.
const releaseDelay = time.Second

// releases holds the ids of calls that ended until Redis is told.
type releases struct {
	now  func() time.Time
	due  func() // flushes; called by a timer
	send func(ctx context.Context, ended map[string]ended) error

	mu      sync.Mutex
	waiting map[string]ended // by account
	timer   bool             // a flush is due
}

// ended are calls of an account.
type ended struct {
	ids   string // one after the other
	since time.Time
}

// add notes that calls ended: none, one, or several.
func (r *releases) add(account, ids string) { r.put(account, ended{ids, r.now()}) }

// put notes calls that ended, or takes back what take gave out. What could not be told for 10 s has lapsed meanwhile.
func (r *releases) put(account string, e ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.putLocked(account, e)
}

func (r *releases) putLocked(account string, e ended) {
	if e.ids == "" || r.now().Sub(e.since) > leaseUS*time.Microsecond {
		return
	}
	if r.waiting == nil {
		r.waiting = map[string]ended{}
	}
	if old, ok := r.waiting[account]; ok {
		e.ids = old.ids + e.ids
		if old.since.Before(e.since) {
			e.since = old.since
		}
	}
	r.waiting[account] = e
	if !r.timer {
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

// flush sends all. What Redis was perhaps not told is tried again.
func (r *releases) flush(ctx context.Context) error {
	r.mu.Lock()
	all := r.waiting
	r.waiting, r.timer = nil, false
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
