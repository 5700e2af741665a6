package broker

import (
	"sync"
	"time"

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
	busy sync.RWMutex // held for reading while a publication is under way
	stop chan struct{}
	done sync.WaitGroup
}

func newLocal(log *zap.Logger) *local {
	l := &local{srv: pstest.NewServer(), log: log, stop: make(chan struct{})}
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

// sweep makes the server forget its messages if there are at least atLeast and all are acknowledged: the server can only
// forget everything at once, waiting messages too. Nothing can be published meanwhile.
func (l *local) sweep(atLeast int) (forgotten int) {
	l.busy.Lock()
	defer l.busy.Unlock()
	msgs := l.srv.Messages()
	if len(msgs) < atLeast {
		return 0
	}
	for _, m := range msgs {
		if m.Acks == 0 {
			return 0
		}
	}
	l.srv.ClearMessages()
	return len(msgs)
}

// close does not use the server's own Wait: a stream that is just being opened would still add to what it waits for. The
// server's goroutines end by themselves within milliseconds.
func (l *local) close() error {
	close(l.stop)
	l.done.Wait()
	return l.srv.Close()
}
