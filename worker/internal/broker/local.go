package broker

import (
	"context"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"go.uber.org/zap"
)

const (
	// sweepEvery is how often the server in the process is asked to forget messages; it keeps all of them by itself.
	sweepEvery = 10 * time.Second
	// sweepFrom is the number of messages worth forgetting, about 1 MB.
	sweepFrom = 1000
)

// local is the Pub/Sub server inside the process.
type local struct {
	srv  *pstest.Server
	log  *zap.Logger
	held leases       // of all subscriptions
	busy sync.RWMutex // held for reading while a publication is under way
	stop chan struct{}
	done sync.WaitGroup
}

func newLocal(log *zap.Logger) *local {
	l := &local{srv: pstest.NewServer(), log: log, stop: make(chan struct{})}
	l.held.resend = l.resend
	l.done.Go(l.sweepLoop)
	return l
}

func (l *local) addr() string { return l.srv.Addr }

// publishing notes a publication; the returned function ends it.
func (l *local) publishing() (end func()) {
	l.busy.RLock()
	return l.busy.RUnlock
}

func (l *local) sweepLoop() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-t.C:
			if n := l.sweep(sweepFrom); n > 0 {
				l.log.Debug("forgot acknowledged messages", zap.Int("messages", n))
			}
		}
	}
}

// sweep makes the server forget its messages if there are at least atLeast: it can only forget everything at once. Those that
// wait to be handed out must not be lost, so it is left alone then; those that are leased are marked, and published anew if
// they are given back. Nothing can be published meanwhile.
func (l *local) sweep(atLeast int) (forgotten int) {
	l.busy.Lock()
	defer l.busy.Unlock()
	l.held.forget(func(leased map[string]bool) bool {
		msgs := l.srv.Messages()
		for _, m := range msgs {
			if m.Acks == 0 && !leased[m.ID] {
				return false
			}
		}
		if len(msgs) < atLeast {
			return false
		}
		l.srv.ClearMessages()
		forgotten = len(msgs)
		return true
	})
	return forgotten
}

// resend publishes a message that the server has forgotten. It asks the server directly and does not wait for a sweep,
// which may be waiting for the leases.
func (l *local) resend(topic string, data []byte) {
	req := &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: data}}}
	if _, err := l.srv.GServer.Publish(context.Background(), req); err != nil {
		l.log.Error("message given back is lost, the sweeper will find its work", zap.Error(err))
	}
}

// close does not use the server's own Wait: a stream that is just being opened would still add to what it waits for. The
// server's goroutines end by themselves within milliseconds.
func (l *local) close() error {
	close(l.stop)
	l.done.Wait()
	return l.srv.Close()
}
