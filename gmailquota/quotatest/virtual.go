package quotatest

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clockCall = "redis.call('TIME')"
	clockKey  = "quotatest:clock" // "seconds microseconds"
	// clockRead takes clockCall's place in the scripts.
	clockRead = "{string.match(redis.call('GET', '" + clockKey + "'), '(%d+) (%d+)')}"
)

// Real starts a redis-server (see StartRedis) and stops its time for scripts: what reads TIME reads a key of the test
// instead, and Advance shortens the life of all keys. Nothing else of the scripts is changed.
func Real(t testing.TB) Redis {
	t.Helper()
	rdb := Client(t, StartRedis(t))
	v := &virtual{t: t, rdb: rdb, now: start, scripts: map[string]string{}}
	v.store()
	rdb.AddHook(v)
	return Redis{rdb, v.advance, v.back, func() time.Time { return v.now }}
}

// virtual is a hook of the client that exchanges the scripts' clock.
type virtual struct {
	t   testing.TB
	rdb redis.UniversalClient
	now time.Time

	mu      sync.Mutex
	scripts map[string]string // SHA-1 of the original → of the changed one, once it was sent
}

func (v *virtual) store() {
	us := v.now.UnixMicro()
	text := fmt.Sprintf("%d %d", us/1e6, us%1e6)
	if err := v.rdb.Set(context.Background(), clockKey, text, 0).Err(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) advance(d time.Duration) {
	ctx := context.Background()
	v.now = v.now.Add(d)
	v.store()
	keys, err := v.rdb.Keys(ctx, "gmailquota:*").Result()
	if err != nil {
		v.t.Fatal(err)
	}
	for _, k := range keys {
		left := v.rdb.PTTL(ctx, k).Val()
		if left <= d {
			v.rdb.Del(ctx, k)
		} else {
			v.rdb.PExpire(ctx, k, left-d)
		}
	}
}

func (v *virtual) back(d time.Duration) {
	v.now = v.now.Add(-d)
	v.store()
}

// DialHook implements redis.Hook.
func (v *virtual) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook: TIME in a pipeline answers the test's time.
func (v *virtual) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			if t, ok := c.(*redis.TimeCmd); ok {
				t.SetVal(v.now)
			}
		}
		return err
	}
}

// ProcessHook implements redis.Hook.
func (v *virtual) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "eval":
			v.replaceText(cmd.Args())
		case "evalsha":
			v.replaceSHA(cmd.Args())
		}
		return next(ctx, cmd)
	}
}

func (v *virtual) replaceText(args []any) {
	original, _ := args[1].(string)
	changed := strings.Replace(original, clockCall, clockRead, 1)
	if changed == original {
		v.t.Errorf("the script does not read its time with %s", clockCall)
	}
	args[1] = changed
	v.mu.Lock()
	v.scripts[sha(original)] = sha(changed)
	v.mu.Unlock()
}

// replaceSHA leaves an unknown script's name: Redis then answers NOSCRIPT, and the client sends the text.
func (v *virtual) replaceSHA(args []any) {
	name, _ := args[1].(string)
	v.mu.Lock()
	defer v.mu.Unlock()
	if changed, ok := v.scripts[name]; ok {
		args[1] = changed
	}
}

func sha(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
