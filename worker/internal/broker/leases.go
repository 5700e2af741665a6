package broker

import (
	"sync"

	"cloud.google.com/go/pubsub/v2"
)

// leases are the messages of one Receive that are neither acknowledged nor given back.
type leases struct {
	mu   sync.Mutex
	open map[*pubsub.Message]struct{}
}

// add notes a message. Of all calls of ack and nack only the first has an effect: the client's own are not safe to be
// called from two goroutines.
func (l *leases) add(m *pubsub.Message) (ack, nack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*pubsub.Message]struct{}{}
	}
	l.open[m] = struct{}{}
	return func() { l.end(m, m.Ack) }, func() { l.end(m, m.Nack) }
}

func (l *leases) end(m *pubsub.Message, how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[m]; ok {
		delete(l.open, m)
		how()
	}
}

// giveBack ends all leases and tells how many there were.
func (l *leases) giveBack() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.open)
	for m := range l.open {
		m.Nack()
	}
	clear(l.open)
	return n
}
