package modeltest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// lease is when a message that a dead process held is delivered again.
const lease = 10 * time.Second

// queue is Pub/Sub: it delivers at least once, to any of the workers, late, twice and out of order, and again after a nack,
// a lapsed lease or the death of the worker that held it. If it is in the process, what a dead one held is lost.
type queue struct {
	weather  *weather
	embedded bool

	mu      sync.Mutex
	workers []*worker
	held    map[*message]*worker
	timers  map[*message]*time.Timer
	lose    int // percent
	double  int // percent
	delay   time.Duration
	closed  bool
}

type message struct{ job consumers.Job }

func newQueue(w *weather, embedded bool) *queue {
	return &queue{weather: w, embedded: embedded, held: map[*message]*worker{}, timers: map[*message]*time.Timer{}}
}

// publisher is a process's way to the queue.
type publisher struct {
	*queue
	p *process
}

// Publish implements consumers.Queue.
func (q publisher) Publish(_ context.Context, jobs ...consumers.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := q.p.step("before publish " + string(jobs[0].Kind)); err != nil {
		return err
	}
	for _, j := range jobs {
		q.send(j)
	}
	return q.p.step("after publish " + string(jobs[0].Kind))
}

// send takes a job in.
func (q *queue) send(j consumers.Job) {
	dice := q.weather.roll("queue" + j.Key())
	q.mu.Lock()
	defer q.mu.Unlock()
	copies := 1
	if dice.IntN(100) < q.lose {
		copies = 0
	} else if dice.IntN(100) < q.double {
		copies = 2
	}
	for range copies {
		q.later(&message{j}, time.Duration(dice.Int64N(int64(q.delay)+1)))
	}
}

// later delivers a message after d. The caller holds the lock.
func (q *queue) later(m *message, d time.Duration) {
	if q.closed {
		return
	}
	if t := q.timers[m]; t != nil {
		t.Stop()
	}
	q.timers[m] = time.AfterFunc(d, func() { q.deliver(m) })
}

func (q *queue) deliver(m *message) {
	q.mu.Lock()
	up := slices.DeleteFunc(slices.Clone(q.workers), func(w *worker) bool { return w.p.died() })
	if q.closed || len(up) == 0 {
		q.later(m, time.Second)
		q.mu.Unlock()
		return
	}
	w := up[q.weather.roll("deliver"+m.job.Key()).IntN(len(up))]
	q.held[m] = w
	q.mu.Unlock()
	w.runners[m.job.Kind].Deliver(consumers.Delivery{Job: m.job, Ack: func() { q.ack(w, m) }, Nack: func() { q.nack(w, m) }})
}

func (q *queue) ack(w *worker, m *message) {
	if w.p.step("before ack "+string(m.job.Kind)) != nil {
		return
	}
	q.mu.Lock()
	if q.held[m] == w {
		delete(q.held, m)
		delete(q.timers, m)
	}
	q.mu.Unlock()
	_ = w.p.step("after ack " + string(m.job.Kind))
}

func (q *queue) nack(w *worker, m *message) {
	if w.p.died() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[m] == w {
		delete(q.held, m)
		q.later(m, time.Second)
	}
}

func (q *queue) join(w *worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = append(q.workers, w)
}

// leave takes a worker out: nothing is delivered to it any more, and what it still holds comes again.
func (q *queue) leave(w *worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = slices.DeleteFunc(q.workers, func(o *worker) bool { return o == w })
	for m, holder := range q.held {
		if holder != w {
			continue
		}
		delete(q.held, m)
		if q.embedded {
			delete(q.timers, m)
		} else {
			q.later(m, lease)
		}
	}
}

func (q *queue) trouble(lose, double int, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose, q.double, q.delay = lose, double, delay
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, t := range q.timers {
		t.Stop()
	}
}

// pending counts messages of work other than history that nobody has acknowledged.
func (q *queue) pending() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for m := range q.timers {
		if m.job.Kind != consumers.History {
			return errors.New("the queue still holds a job of kind " + string(m.job.Kind))
		}
	}
	return nil
}
