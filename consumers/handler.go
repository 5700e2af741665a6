package consumers

import (
	"context"
	"math/rand/v2"
	"time"
)

// Slice is how long a handler goes on with one job before it stores what it has and returns Yield: sleeping for quota
// holds the slot, and other accounts' jobs wait for it.
const Slice = 5 * time.Second

// Handler works on one kind of job. Handle is called by several goroutines, never by two at once for jobs of one key
// in one process; another process may work on the same key, so what it stores must be guarded by the store.
//
// Every job may come twice, late, or for work that is finished: then the outcome is Done. The outcome decides what
// happens to the message that carried the job:
//
//   - Done acknowledges it. Whatever is left of the work is in the database, where the sweeper finds it.
//   - RequeueAfter keeps the message leased, outside any slot, and calls Handle again after the wait. It is for calls
//     that were denied or throttled, and for a rest whose time the handler knows; it is never an attempt. A wait too long
//     for the lot goes to the database, and the message is acknowledged. Yield is the same without a wait.
//   - Retry does so after a backoff that grows with each Retry in a row (see Backoff). A panic is a Retry. When a job has
//     panicked, or met Permanent or Gone, RunnerConfig.MaxAttempts times, a dead letter is written and it is acknowledged.
//
// When ctx ends the process is stopping: Handle returns soon, stores what it has, counts nothing as failed, and its
// message goes back to the queue unless it is Done.
type Handler interface {
	Handle(ctx context.Context, j Job) Outcome
}

const (
	backoffMin = time.Second
	backoffMax = 5 * time.Minute
)

// Backoff is the wait before the next try after n failed ones in a row, n from 1: one second doubled each time up to
// five minutes, less up to a fifth so that jobs that failed together do not come back together.
func Backoff(n int) time.Duration {
	d := backoffMax
	if n < 1 {
		n = 1
	}
	if n < 10 {
		d = min(backoffMin<<(n-1), backoffMax)
	}
	return d - rand.N(d/5)
}
