package quotaplan

import "time"

// slotTime is how long the slots of a Window are. A charge counts until its slot is a minute and the jitter past: up to
// half a second, 0.8 % of the limit, longer than it must, for 121 numbers a minute at most.
const slotTime = 500 * time.Millisecond

// Window is another way to keep a limit than the guard's bucket: it counts the last 60 seconds exactly, in slots. After a
// rest the whole limit may go at once, and then nothing for a minute. The guard has none, see its package comment; this
// one is to be compared with. Not safe for concurrent use.
type Window struct {
	limit int64
	span  time.Duration // for how long after its slot a charge counts
	used  int64
	slots []slot // by time
}

type slot struct {
	number int64 // of slots since the time 0
	units  int64
}

// NewWindow makes a Window with a limit in units a minute; jitter is the longest time between admission and arrival.
func NewWindow(limit int64, jitter time.Duration) *Window {
	return &Window{limit: limit, span: time.Minute + jitter}
}

func (w *Window) end(s slot) time.Duration { return time.Duration(s.number+1)*slotTime + w.span }

// Rest is how long it takes at most, after the last call, until the whole limit may go at once again.
func (w *Window) Rest() time.Duration { return slotTime + w.span }

// Admit charges a call that is asked for at now, since the time 0, and returns how long it must wait. now must not
// decrease. A call of more units than the limit waits until nothing else counts.
func (w *Window) Admit(now time.Duration, units int64) time.Duration {
	for len(w.slots) > 0 && w.end(w.slots[0]) <= now {
		w.used -= w.slots[0].units
		w.slots = w.slots[1:]
	}
	// Everything that counts at the admission does so here too, what is reserved ahead as well: so no minute that the
	// call may be in has more than the limit.
	at := now
	for i, over := 0, w.used+units-max(w.limit, units); over > 0; i++ {
		over -= w.slots[i].units
		at = w.end(w.slots[i])
	}
	w.charge(int64(at/slotTime), units)
	return at - now
}

func (w *Window) charge(number, units int64) {
	if n := len(w.slots); n == 0 || w.slots[n-1].number < number {
		w.slots = append(w.slots, slot{number, 0})
	}
	w.slots[len(w.slots)-1].units += units
	w.used += units
}
