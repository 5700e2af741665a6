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

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// expiryTick is how often the embedded Redis lets keys expire: miniredis never does so by itself.
const expiryTick = 100 * time.Millisecond

// embeddedRedis is a Redis inside this process, on loopback. A worker's leaves its address in a file beside the store, so
// that a command run beside the worker charges the same buckets.
type embeddedRedis struct {
	server *miniredis.Miniredis
	file   string // empty for a command's own
	stop   chan struct{}
	done   chan struct{}
}

// openRedis connects to the configured Redis. "embedded" means one in this process, except for a command beside a worker:
// that uses the worker's.
func openRedis(ctx context.Context, cfg configs.Config, isWorker bool) (redis.UniversalClient, *embeddedRedis, error) {
	url := cfg.Redis.URL
	var own *embeddedRedis
	if url == configs.Embedded {
		file := cfg.Store.Path + ".redis"
		addr, ok := "", false
		if !isWorker {
			addr, ok = liveRedis(ctx, file)
			file = ""
		}
		if !ok {
			var err error
			if own, err = startEmbeddedRedis(file); err != nil {
				return nil, nil, err
			}
			addr = own.server.Addr()
		}
		url = "redis://" + addr
	}
	options, err := gmailquota.RedisOptions(url, cfg.Redis.Timeout)
	if err != nil {
		return nil, nil, fmt.Errorf("redis.url: %w", err) // cannot be an embedded one
	}
	return redis.NewUniversalClient(options), own, nil
}

// liveRedis returns the address in file if a Redis answers there; a file left by a killed worker does not count.
func liveRedis(ctx context.Context, file string) (string, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false
	}
	addr := strings.TrimSpace(string(data))
	probe := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	defer func() { _ = probe.Close() }()
	return addr, probe.Ping(ctx).Err() == nil
}

func startEmbeddedRedis(file string) (*embeddedRedis, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	if file != "" {
		if err := os.WriteFile(file, []byte(server.Addr()+"\n"), 0o600); err != nil {
			server.Close()
			return nil, fmt.Errorf("embedded redis: %w", err)
		}
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
	if e.file == "" {
		return nil
	}
	if err := os.Remove(e.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("embedded redis: %w", err)
	}
	return nil
}
