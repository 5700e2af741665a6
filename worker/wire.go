package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/history"
	"github.com/gmailsync/gmailsync/consumers/initialsync"
	"github.com/gmailsync/gmailsync/consumers/threadbatch"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/worker/internal/broker"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
	"github.com/gmailsync/gmailsync/worker/internal/push"
)

// guardConfig is the guard's part of the configuration, in the guard's own terms.
func guardConfig(cfg configs.Config) gmailquota.Config {
	g := cfg.Guard
	c := gmailquota.DefaultConfig()
	c.Project, c.PriceList, c.Prices = g.Project, g.PriceList, g.Prices
	c.UserLimit, c.ProjectLimit, c.UserBurst, c.ProjectBurst = g.UserLimit, g.ProjectLimit, g.UserBurst, g.ProjectBurst
	c.UserCapacity, c.UserRefill = g.PerUserCapacityUnits, g.PerUserRefillUnitsPerMinute
	c.Jitter, c.InFlight, c.KeyTTL = g.Jitter, g.InFlight, g.KeyTTL
	c.FailOpen, c.LocalFallback, c.Workers = g.FailOpen, g.LocalFallback, g.Workers
	c.Shares = map[gmailquota.Class]int{
		gmailquota.Realtime: g.ShareRealtime, gmailquota.Backfill: g.ShareBackfill, gmailquota.Maintenance: g.ShareMaintenance,
	}
	c.DailyLimit, c.RedisTimeout = g.DailyLimit, cfg.Redis.Timeout
	return c
}

// checkGuard says in the configuration's terms what the guard would refuse, before anything is made on disk.
func checkGuard(cfg configs.Config) error {
	err := guardConfig(cfg).Validate()
	if err == nil && cfg.Redis.URL != configs.Embedded {
		_, err = gmailquota.RedisOptions(cfg.Redis.URL, cfg.Redis.Timeout)
	}
	var wrong *gmailquota.ConfigError
	if !cfg.Guard.Enabled || !errors.As(err, &wrong) {
		return nil
	}
	return &configs.Error{Key: guardKey(wrong.Field), Value: wrong.Value, Allowed: wrong.Allowed}
}

// guardKey is the setting from which guardConfig took a field.
func guardKey(field string) string {
	switch field {
	case "UserCapacity":
		return "guard.perUserCapacityUnits"
	case "UserRefill":
		return "guard.perUserRefillUnitsPerMinute"
	case "RedisTimeout":
		return "redis.timeout"
	case "RedisURL":
		return "redis.url"
	}
	if class, ok := strings.CutPrefix(field, "Shares["); ok {
		return "guard.share" + strings.ToUpper(class[:1]) + strings.TrimSuffix(class[1:], "]")
	}
	if method, ok := strings.CutPrefix(field, "Prices["); ok {
		return "guard.prices." + strings.Trim(method, `"]`)
	}
	return "guard." + strings.ToLower(field[:1]) + field[1:]
}

// gmailConfig is how Gmail is called with the access tokens of t.
func (m *Mirror) gmailConfig(t gmailapi.Tokens) gmailapi.Config {
	c := gmailapi.Config{Endpoint: m.cfg.Gmail.Endpoint, Topic: m.cfg.PubSub.Topic, Tokens: t, MaxWait: m.cfg.Guard.MaxWait}
	if m.guard != nil {
		c.Guard = m.guard
	}
	return c
}

// build makes what a worker has beyond its mirror: queue, consumers, sweeper, push endpoint.
func (w *Worker) build(ctx context.Context) error {
	c := w.cfg.Consumers
	var err error
	w.queue, err = broker.Open(ctx, broker.Config{
		Endpoint: w.cfg.PubSub.Endpoint, Project: w.cfg.PubSub.Project, Prefix: w.cfg.PubSub.Prefix,
		Outstanding: c.MaxParked + max(c.InitialSync, c.ThreadBatch, c.History),
	}, w.log)
	if err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	if err := w.buildConsumers(); err != nil {
		return err
	}
	w.sweeper = consumers.NewSweeper(w.base(), true) // the mirror's lock sees to it
	if w.cfg.Push.Listen == "" && w.pushListener == nil {
		return nil
	}
	w.push, err = push.New(ctx, push.Config{
		Audience: w.cfg.Push.Audience, ServiceAccount: w.cfg.Push.ServiceAccount, CertsURL: w.cfg.Push.CertsURL,
	}, w.mirror.store, w.queue, w.log)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return nil
}

// base is what every consumer and the sweeper stand on.
func (w *Worker) base() consumers.Base {
	return consumers.Base{
		Mailboxes: w.mirror.gmail, Store: w.mirror.store, Queue: w.queue, Log: w.log, SweepAfter: w.cfg.Consumers.SweepAfter,
	}
}

func (w *Worker) buildConsumers() error {
	c := w.cfg.Consumers
	base := w.base()
	onApplied := func(account string, cursor consumers.HistoryID) { w.observe(account, uint64(cursor)) }
	w.runners = map[consumers.Kind]*consumers.Runner{}
	for _, r := range []struct {
		kind    consumers.Kind
		slots   int
		handler consumers.Handler
	}{
		{consumers.InitialSync, c.InitialSync, initialsync.New(base, initialsync.Config{BatchSize: c.BatchSize, Window: c.Window})},
		{consumers.ThreadBatch, c.ThreadBatch, threadbatch.New(base, threadbatch.Config{Window: c.Window, MaxAttempts: c.MaxAttempts})},
		{consumers.History, c.History, history.New(base, history.Config{
			PollInterval: c.PollInterval, MaxAttempts: c.MaxAttempts, OnApplied: onApplied,
		})},
	} {
		runner, err := consumers.NewRunner(consumers.RunnerConfig{
			Kind: r.kind, Workers: r.slots, MaxPark: c.MaxPark, MaxParked: c.MaxParked, SweepAfter: c.SweepAfter,
			MaxAttempts: c.MaxAttempts,
			Grace:       time.Hour, // Stop's context ends it
		}, r.handler, w.mirror.store, w.log)
		if err != nil {
			return fmt.Errorf("consumers: %w", err)
		}
		w.runners[r.kind] = runner
	}
	return nil
}

// watchConfig lets a change of guard.failOpen in the file take effect, until ctx ends. Everything else needs a restart.
func (w *Worker) watchConfig(ctx context.Context) {
	failOpen := w.cfg.Guard.FailOpen
	err := configs.Watch(ctx, w.configFile, func(cfg configs.Config) {
		if w.mirror.guard == nil || cfg.Guard.FailOpen == failOpen {
			return
		}
		failOpen = cfg.Guard.FailOpen
		w.mirror.guard.SetFailOpen(failOpen)
		w.log.Info("guard.failOpen has changed", zap.Bool("failOpen", failOpen))
	}, func(err error) {
		w.log.Error("configuration file has changed and is wrong; the old settings stay", zap.Error(err))
	})
	if err != nil && ctx.Err() == nil {
		w.log.Error("configuration file is not watched; a change needs a restart", zap.Error(err))
	}
}
