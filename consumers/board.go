package consumers

import (
	"container/heap"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

type entryState uint8

const (
	ready entryState = iota
	working
	parked
)

// entry is the work of one key that this process holds.
type entry struct {
	key   string
	job   Job
	lease Delivery  // of the message that carries job
	next  *Delivery // arrived while the job was being worked: runs once afterwards
	state entryState
	since time.Time        // when it began to wait
	due   time.Time        // parked
	turn  *gmailquota.Turn // where the job stands in line for quota, while it waits here
}

// lane is one account's entries.
type lane struct {
	account string
	ready   []*entry // first come, first served
	held    int      // entries in any state
	working int
	queued  bool // stands in the ring
}

// board keeps the entries and says which is worked next: accounts take turns, and none has more than maxWorking entries
// worked at once, so that one account's jobs never keep another's waiting. It reads no clock and takes no lock.
type board struct {
	maxWorking int
	entries    map[string]*entry
	lanes      map[string]*lane
	ring       []*lane // those with something ready and a turn to come
	lot        lot
}

func newBoard(maxWorking int) *board {
	return &board{maxWorking: maxWorking, entries: map[string]*entry{}, lanes: map[string]*lane{}}
}

// held counts an account's entries.
func (b *board) held(account string) int {
	if l := b.lanes[account]; l != nil {
		return l.held
	}
	return 0
}

// fold joins d into the entry of its key, if there is one. folded tells that d's message is not needed any more, because
// the entry's own stands for it.
func (b *board) fold(d Delivery) (found, folded bool) {
	e := b.entries[d.Job.Key()]
	switch {
	case e == nil:
		return false, false
	case e.state != working:
		e.job = merge(e.job, d.Job)
		return true, true
	case e.next != nil:
		e.next.Job = merge(e.next.Job, d.Job)
		return true, true
	}
	e.next = &d
	return true, false
}

// merge is the job that stands for both: the older cause.
func merge(kept, arrived Job) Job {
	if arrived.At.Before(kept.At) {
		kept.At = arrived.At
	}
	return kept
}

// add takes in a delivery that fold did not find an entry for.
func (b *board) add(d Delivery, now time.Time) {
	e := &entry{key: d.Job.Key(), job: d.Job, lease: d, turn: new(gmailquota.Turn)}
	b.entries[e.key] = e
	l := b.lanes[d.Job.Account]
	if l == nil {
		l = &lane{account: d.Job.Account}
		b.lanes[l.account] = l
	}
	l.held++
	b.makeReady(e, now)
}

func (b *board) makeReady(e *entry, now time.Time) {
	e.state, e.since = ready, now
	l := b.lanes[e.job.Account]
	l.ready = append(l.ready, e)
	b.enqueue(l)
}

func (b *board) enqueue(l *lane) {
	if l.queued || len(l.ready) == 0 || l.working >= b.maxWorking {
		return
	}
	l.queued = true
	b.ring = append(b.ring, l)
}

// take hands out the next entry, nil if there is none.
func (b *board) take() *entry {
	if len(b.ring) == 0 {
		return nil
	}
	l := b.ring[0]
	b.ring = b.ring[1:]
	l.queued = false
	e := l.ready[0]
	l.ready = l.ready[1:]
	e.state = working
	l.working++
	b.enqueue(l)
	return e
}

// done ends the work on an entry. If another delivery of its key came meanwhile, that one is ready now.
func (b *board) done(e *entry, now time.Time) {
	b.rest(e)
	if e.next != nil {
		e.job, e.lease, e.next, e.turn = e.next.Job, *e.next, nil, new(gmailquota.Turn)
		b.makeReady(e, now)
		return
	}
	b.forget(e)
}

// remove ends the work on an entry and gives it up together with what came meanwhile.
func (b *board) remove(e *entry) []Delivery {
	b.rest(e)
	b.forget(e)
	out := []Delivery{e.lease}
	if e.next != nil {
		out = append(out, *e.next)
	}
	return out
}

// park takes an entry out of work until due. What came meanwhile is folded into it and returned, nil if nothing did.
func (b *board) park(e *entry, due, now time.Time) *Delivery {
	b.rest(e)
	folded := e.next
	if folded != nil {
		e.job, e.next = merge(e.job, folded.Job), nil
	}
	if !due.After(now) {
		b.makeReady(e, now)
		return folded
	}
	e.state, e.since, e.due = parked, now, due
	heap.Push(&b.lot, e)
	return folded
}

// wake makes ready what is due and returns when the next one is, zero if none is parked.
func (b *board) wake(now time.Time) time.Time {
	for len(b.lot) > 0 {
		e := b.lot[0]
		if e.due.After(now) {
			return e.due
		}
		heap.Pop(&b.lot)
		since := e.since
		b.makeReady(e, now)
		e.since = since
	}
	return time.Time{}
}

// drain gives up everything that is not being worked.
func (b *board) drain() []Delivery {
	var out []Delivery
	for _, e := range b.entries {
		if e.state != working {
			out = append(out, e.lease)
			b.forget(e)
		} else if e.next != nil {
			out = append(out, *e.next)
			e.next = nil
		}
	}
	b.lot, b.ring = nil, nil
	for _, l := range b.lanes {
		l.ready, l.queued = nil, false
	}
	return out
}

// rest ends an entry's turn.
func (b *board) rest(e *entry) {
	l := b.lanes[e.job.Account]
	l.working--
	b.enqueue(l)
}

func (b *board) forget(e *entry) {
	delete(b.entries, e.key)
	l := b.lanes[e.job.Account]
	l.held--
	if l.held == 0 {
		delete(b.lanes, l.account)
	}
}

// lot is the heap of parked entries, the one due first on top.
type lot []*entry

func (p lot) Len() int           { return len(p) }
func (p lot) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p lot) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *lot) Push(x any)        { *p = append(*p, x.(*entry)) }

func (p *lot) Pop() any {
	old := *p
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*p = old[:len(old)-1]
	return e
}
