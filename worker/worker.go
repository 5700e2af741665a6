// Package worker joins configs to everything: it builds the store, the guard, the Gmail client, the queue, the three
// consumers and the push endpoint from one configuration, starts them and stops them in order. It also exports what
// the commands need of a mirror (Mirror). It must not know command lines or how anything is shown.
package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/worker/internal/broker"
	"github.com/gmailsync/gmailsync/worker/internal/push"
)

// Observer is told each time an account's cursor has moved: every change up to it is stored. It is called from the
// consumers' goroutines and must return at once.
type Observer func(account string, cursor uint64)

// Option changes how a Worker runs.
type Option func(*Worker)

// WithLogger sets the logger; default none.
func WithLogger(log *zap.Logger) Option { return func(w *Worker) { w.log = log } }

// WithObserver sets the observer of cursors.
func WithObserver(o Observer) Option { return func(w *Worker) { w.observe = o } }

// WithPushListener serves the push endpoint on l instead of push.listen. A worker that was started closes it.
func WithPushListener(l net.Listener) Option { return func(w *Worker) { w.pushListener = l } }

// WithConfigFile names the file whose changes take effect while the worker runs (guard.failOpen).
func WithConfigFile(path string) Option { return func(w *Worker) { w.configFile = path } }

// Worker mirrors the accounts of one store. New builds it, Start and Stop run it, once.
type Worker struct {
	cfg          configs.Config
	log          *zap.Logger
	observe      Observer
	pushListener net.Listener
	configFile   string

	mirror  *Mirror
	queue   *broker.Broker
	runners map[consumers.Kind]*consumers.Runner
	sweeper *consumers.Sweeper
	push    *push.Handler // nil without an endpoint
	servers []*httpServer

	intake   context.CancelFunc // ends receiving, sweeping, watching and the watching of the file
	services sync.WaitGroup     // what intake ends
	stopOnce sync.Once
	stopErr  error
}

// New builds a worker. It opens the store and connects to Redis and Pub/Sub; nothing is worked on before Start. After
// an error everything is closed again.
func New(ctx context.Context, cfg configs.Config, opts ...Option) (*Worker, error) {
	w := &Worker{cfg: cfg, log: zap.NewNop(), observe: func(string, uint64) {}}
	for _, o := range opts {
		o(w)
	}
	var err error
	if w.mirror, err = openMirror(ctx, cfg, w.log, true); err != nil {
		return nil, err
	}
	if err := w.build(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// Mirror returns the stored mailboxes. It is closed by Stop.
func (w *Worker) Mirror() *Mirror { return w.mirror }

// Start begins to receive jobs and notifications and returns when it does. ctx bounds the start only. After an error
// the worker is stopped.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return errors.Join(err, w.Stop(ctx))
	}
	return nil
}

func (w *Worker) start(ctx context.Context) error {
	intake, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.intake = cancel
	if err := w.sweeper.Start(ctx); err != nil {
		return fmt.Errorf("start the sweeper: %w", err)
	}
	for kind, r := range w.runners {
		r.Start()
		w.services.Go(func() { w.queue.Receive(intake, kind, r.Receive) })
	}
	w.services.Go(func() { w.renewWatches(intake) })
	w.services.Go(func() { w.mirror.checkRedis(intake) })
	if w.configFile != "" {
		w.services.Go(func() { w.watchConfig(intake) })
	}
	if err := w.listen(ctx); err != nil {
		return err
	}
	w.log.Info("worker started", zap.String("guard", w.mirror.guardSummary()))
	return nil
}

// Stop ends the worker in the order intake, handlers, watch renewal, broker, store, listeners of figures. Handlers
// get until ctx ends, then they are canceled; what they left is work that the database still says is open. A second
// call does nothing.
func (w *Worker) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() { w.stopErr = w.stop(ctx) })
	return w.stopErr
}

func (w *Worker) stop(ctx context.Context) error {
	var errs []error
	errs = append(errs, w.closeServers(ctx, servesPush))
	if w.intake != nil {
		w.intake()
		w.sweeper.Stop()
	}
	var stopping sync.WaitGroup
	failed := make(chan error, len(w.runners))
	for _, r := range w.runners {
		stopping.Go(func() { failed <- r.Stop(ctx) })
	}
	stopping.Wait()
	close(failed)
	for err := range failed {
		errs = append(errs, err)
	}
	w.services.Wait()
	errs = append(errs, w.close(), w.closeServers(ctx, servesStatus))
	w.log.Info("worker stopped")
	return errors.Join(errs...)
}

// close frees what New opened.
func (w *Worker) close() error {
	var errs []error
	if w.queue != nil {
		errs = append(errs, w.queue.Close())
	}
	errs = append(errs, w.mirror.Close())
	return errors.Join(errs...)
}

// Activity is what waits for one account, over all consumers.
type Activity struct {
	Waiting int           // jobs that wait for a slot or for quota
	Longest time.Duration // how long the oldest of them has waited
}

// Activity returns what waits now, by account id.
func (w *Worker) Activity() map[string]Activity {
	all := map[string]Activity{}
	for _, r := range w.runners {
		for account, waiting := range r.Waiting() {
			a := all[account]
			a.Waiting += waiting.Count
			a.Longest = max(a.Longest, waiting.Longest)
			all[account] = a
		}
	}
	return all
}

// Requeued counts the jobs that came back after a denial or a throttle.
func (w *Worker) Requeued() int64 {
	var n int64
	for _, r := range w.runners {
		n += r.Stats().Requeued
	}
	return n
}

// GuardStats returns what the guard decided in this process; zero when it is off.
func (w *Worker) GuardStats() gmailquota.Stats {
	if w.mirror.guard == nil {
		return gmailquota.Stats{}
	}
	return w.mirror.guard.Stats()
}
