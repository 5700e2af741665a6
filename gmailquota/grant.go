package gmailquota

import (
	"context"
	"sync/atomic"
	"time"
)

// Grant is an admitted call: its units are charged, and it counts as under way until Release or Refund, for at most 10 s
// after its admission. Methods are safe for concurrent use.
type Grant struct {
	guard    *Guard
	account  string
	units    int64
	wait     time.Duration
	charge   charge
	decision decision
	at       int64 // µs, by Redis' clock, when it may be made
	where    place
	ended    atomic.Bool
}

// place is who made a decision.
type place uint8

const (
	shared    place = iota // Redis
	inLocal                // the local fallback
	unmetered              // nobody: FailOpen without the fallback
)

// Wait is how long to sleep before the call may be made. The grant of Guard.Wait has slept already: 0.
func (gr *Grant) Wait() time.Duration { return gr.wait }

// Units is what the call was charged.
func (gr *Grant) Units() int64 { return gr.units }

// Release says that the call has ended, whatever came of it. It costs nothing: it rides on a later decision. Where
// a user has many calls under way it goes out within a second if there is none; else, after 10 s, it counts as ended. Calls after the first do nothing, also after Refund.
func (gr *Grant) Release() {
	if gr.ended.Swap(true) {
		return
	}
	switch gr.where {
	case shared:
		gr.guard.releases.add(gr.account, gr.charge.id, gr.decision.signs&signBusy != 0)
	case inLocal:
		gr.guard.local.release(gr.account, gr.charge.id)
	}
}

// Refused tells that Gmail refused the call: see Guard.Penalize. A call that was admitted before a pause belongs to the
// refusals that began it, however late its answer comes.
func (gr *Grant) Refused(ctx context.Context, r Refusal) error {
	return gr.guard.penalize(ctx, gr.account, r, gr.at)
}

// Refund takes the charge back. It is for calls of which nothing reached Gmail: the connection could not be made, the
// context ended before sending. What the bucket has refilled since the charge stays refilled, and calls reserved behind
// this one keep their times, so that a refund never lets a user pass the limit: of a reservation that others are behind
// less comes back, or nothing. Calls after the first do nothing, also after Release. Without Redis the charge stays.
func (gr *Grant) Refund(ctx context.Context) {
	if gr.ended.Swap(true) {
		return
	}
	gr.guard.counters.refunded.Add(gr.units)
	switch gr.where {
	case shared:
		gr.guard.refundShared(ctx, gr)
	case inLocal:
		gr.guard.local.refund(gr)
	}
}
