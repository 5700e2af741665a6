package broker

import (
	"sync"

	"cloud.google.com/go/pubsub/v2"
)

// leases are a broker's messages that are neither acknowledged nor given back.
type leases struct {
	// resend publishes the data of a message that is given back after its server has forgotten it; nil where servers
	// do not forget.
	resend func(topic string, data []byte)

	mu   sync.Mutex
	open map[*pubsub.Message]*lease
}

type lease struct {
	topic     string
	forgotten bool // by the server in the process (see local.sweep): it neither takes nor needs an answer
}

// add notes a message that came for a topic's subscription. Of all calls of ack and nack only the first has an effect: the
// client's own are not safe to be called from two goroutines.
func (l *leases) add(topic string, m *pubsub.Message) (ack, nack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*pubsub.Message]*lease{}
	}
	l.open[m] = &lease{topic: topic}
	return func() { l.end(m, m.Ack) }, func() { l.end(m, func() { l.back(m) }) }
}

func (l *leases) end(m *pubsub.Message, how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[m] != nil {
		how()
		delete(l.open, m)
	}
}

func (l *leases) back(m *pubsub.Message) {
	if held := l.open[m]; held.forgotten {
		l.resend(held.topic, m.Data)
	}
	m.Nack()
}

// giveBack ends all leases of a topic and tells how many there were.
func (l *leases) giveBack(topic string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, held := range l.open {
		if held.topic == topic {
			l.back(m)
			delete(l.open, m)
			n++
		}
	}
	return n
}

// forget calls clearBut with the ids of all leased messages, and marks these as forgotten if it reports true. Nothing is
// acknowledged or given back meanwhile.
func (l *leases) forget(clearBut func(leased map[string]bool) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leased := make(map[string]bool, len(l.open))
	for m := range l.open {
		leased[m.ID] = true
	}
	if clearBut(leased) {
		for _, held := range l.open {
			held.forgotten = true
		}
	}
}
