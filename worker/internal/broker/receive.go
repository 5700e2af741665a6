package broker

import (
	"context"
	"math/rand/v2"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

const (
	// minLease is the shortest extension of a lease. The client would derive it from the 99th percentile of handling
	// times, so that a rare job that waits for quota among many quick ones would lose its lease.
	minLease = 60 * time.Second
	// maxLease is how long a message may be held in all. It is far above the longest wait in the process (maxPark), so
	// that only a stuck handler loses its message.
	maxLease = time.Hour
	// maxOutstandingBytes bounds the memory of leased messages; a job is about 200 bytes.
	maxOutstandingBytes = 16 << 20
	// localStreams: the server in the process hands out one message a stream each 10 ms.
	localStreams = 4
	// shutdownWait is how long Receive waits for acknowledgements after its context ended, farewellWait how long it then
	// waits for the service to take them.
	shutdownWait = 30 * time.Second
	farewellWait = 5 * time.Second
	// Between two tries to receive after an error of the service that its client does not retry by itself.
	minReceiveBackoff = time.Second
	maxReceiveBackoff = 30 * time.Second
)

// Receive hands out the messages of one kind until ctx ends; then it waits until all of them are acknowledged or given
// back, and after 30 s gives the rest back itself. deliver is called concurrently and should return at once: the message
// stays leased until ack or nack is called, from any goroutine. Only the first of these calls counts. Errors of the
// service are logged and receiving starts again, so that an outage needs nobody; an emulator that has lost its topics and
// subscriptions gets them again. Receive may run once for a kind at a time.
func (b *Broker) Receive(ctx context.Context, kind consumers.Kind,
	deliver func(data []byte, ack, nack func()),
) {
	held := &b.held
	if b.local != nil {
		held = &b.local.held
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.receive(ctx, kind, held, deliver)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	if wait(done, shutdownWait) {
		return
	}
	b.log.Warn("gave back messages that nobody finished", zap.String("subscription", b.name(kind)),
		zap.Int("messages", held.giveBack(b.topicPath(kind))))
	// The client keeps trying to tell the service until Close.
	if !wait(done, farewellWait) {
		b.log.Warn("left without the service's answer", zap.String("subscription", b.name(kind)))
	}
}

func (b *Broker) receive(ctx context.Context, kind consumers.Kind, held *leases,
	deliver func(data []byte, ack, nack func()),
) {
	s := b.client.Subscriber(b.name(kind))
	s.ReceiveSettings = b.settings()
	handle := func(_ context.Context, m *pubsub.Message) {
		ack, nack := held.add(b.topicPath(kind), m)
		deliver(m.Data, ack, nack)
	}
	var backoff time.Duration
	for {
		began := time.Now()
		err := s.Receive(ctx, handle)
		if ctx.Err() != nil {
			return
		}
		backoff = nextBackoff(backoff, time.Since(began))
		b.log.Error("receiving stopped, trying again", zap.String("subscription", b.name(kind)), zap.Error(err),
			zap.Duration("after", backoff))
		if b.lost(err) {
			if err := b.create(ctx); err != nil {
				b.log.Error("lost topics and subscriptions could not be created", zap.Error(err))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff/2 + rand.N(backoff/2)):
		}
	}
}

// nextBackoff doubles the pause after each failure; receiving that went well for long begins anew.
func nextBackoff(last, ran time.Duration) time.Duration {
	if ran > maxReceiveBackoff {
		return minReceiveBackoff
	}
	return min(max(2*last, minReceiveBackoff), maxReceiveBackoff)
}

// wait reports whether done was closed within d.
func wait(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// settings leaves out ShutdownOptions on purpose: with a timeout there, the client closes its streams at once when
// deliver has returned, and the acknowledgements that follow are lost.
func (b *Broker) settings() pubsub.ReceiveSettings {
	rs := pubsub.ReceiveSettings{
		MaxExtension:               maxLease,
		MinDurationPerAckExtension: minLease,
		MaxOutstandingMessages:     b.cfg.Outstanding,
		MaxOutstandingBytes:        maxOutstandingBytes,
		NumGoroutines:              1,
	}
	if b.cfg.Endpoint != "" {
		rs.NumGoroutines = localStreams
	}
	return rs
}
