package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// expiryTick is how often the embedded Redis lets keys expire: miniredis never does so by itself.
const expiryTick = 100 * time.Millisecond

// embeddedRedis is a Redis inside this process, on loopback. It leaves its address in a file beside the store, so that a
// command run beside this process charges the same buckets.
type embeddedRedis struct {
	server *miniredis.Miniredis
	file   string
	stop   chan struct{}
	done   chan struct{}
}

// openRedis connects to the configured Redis. "embedded" means that of the process that holds the store's lock.
func openRedis(ctx context.Context, cfg configs.Config, holds bool) (redis.UniversalClient, *embeddedRedis, error) {
	url := cfg.Redis.URL
	var own *embeddedRedis
	if url == configs.Embedded {
		file := cfg.Store.Path + ".redis"
		var addr string
		var err error
		if holds {
			if own, err = startEmbeddedRedis(file); err == nil {
				addr = own.server.Addr()
			}
		} else {
			addr, err = liveRedis(ctx, file)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("redis.url: embedded: %w", err)
		}
		url = "redis://" + addr
	}
	options, err := gmailquota.RedisOptions(url, cfg.Redis.Timeout)
	if err != nil {
		return nil, nil, fmt.Errorf("redis.url: %w", err) // cannot be an embedded one
	}
	return redis.NewUniversalClient(options), own, nil
}

// checkRedis warns of what about the configured Redis does not suit the guard. The embedded one does.
func (m *Mirror) checkRedis(ctx context.Context) {
	if m.guard == nil || m.cfg.Redis.URL == configs.Embedded {
		return
	}
	for _, found := range gmailquota.CheckRedis(ctx, m.rdb) {
		m.log.Warn("check of redis.url", zap.String("found", found))
	}
}

// liveRedis returns the address in file once a Redis answers there: the process that holds the lock may just be starting.
func liveRedis(ctx context.Context, file string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(file)
		if err == nil {
			addr := strings.TrimSpace(string(data))
			if err = ping(ctx, addr); err == nil {
				return addr, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the process that uses this store has none: %w", err)
		case <-tick.C:
		}
	}
}

func ping(ctx context.Context, addr string) error {
	probe := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	return errors.Join(probe.Ping(ctx).Err(), probe.Close())
}

func startEmbeddedRedis(file string) (*embeddedRedis, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(server.Addr()+"\n"), 0o600); err != nil {
		server.Close()
		return nil, err
	}
	e := &embeddedRedis{server: server, file: file, stop: make(chan struct{}), done: make(chan struct{})}
	go e.expire()
	return e, nil
}

func (e *embeddedRedis) expire() {
	defer close(e.done)
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case now := <-tick.C:
			e.server.FastForward(now.Sub(last))
			last = now
		case <-e.stop:
			return
		}
	}
}

func (e *embeddedRedis) close() error {
	close(e.stop)
	<-e.done
	e.server.Close()
	if err := os.Remove(e.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("embedded redis: %w", err)
	}
	return nil
}
