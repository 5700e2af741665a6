package gmailquota

import (
	"context"
	"strings"
	"sync"
	"time"
)

// releaseDelay is how long the end of a call waits for a decision to ride on: long enough that a busy user's always
// does, short enough that other processes do not miss the slot for long.
const releaseDelay = time.Second

// releases holds the ids of calls that ended until Redis is told.
type releases struct {
	mu    sync.Mutex
	ended map[string]string // account → its ids, one after the other
	timer bool              // a flush is due
	due   func()            // flushes; called by the timer
	send  func(ctx context.Context, ended map[string]string) error
}

// add notes calls that ended: none, one, or several ids as take gave them.
func (r *releases) add(account, ids string) {
	if ids == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = map[string]string{}
	}
	r.ended[account] += ids
	if !r.timer {
		r.timer = true
		time.AfterFunc(releaseDelay, r.due)
	}
}

// take hands out an account's ids for a decision to carry. If that fails they are added again, and lapse if the next
// flush fails too.
func (r *releases) take(account string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids, ok := r.ended[account]
	if ok {
		delete(r.ended, account)
	}
	return strings.Clone(ids)
}

func (r *releases) flush(ctx context.Context) error {
	r.mu.Lock()
	ended := r.ended
	r.ended, r.timer = nil, false
	r.mu.Unlock()
	if len(ended) == 0 {
		return nil
	}
	return r.send(ctx, ended)
}
