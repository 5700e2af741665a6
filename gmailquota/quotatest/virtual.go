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
// instead, and keys live by the test's time as well: on a busy machine a second of Redis' own passes between two steps.
// Nothing else of the scripts is changed.
func Real(t testing.TB) Redis {
	t.Helper()
	rdb := Client(t, StartRedis(t))
	v := &virtual{t: t, rdb: rdb, now: start, scripts: map[string]string{}, ends: map[string]time.Duration{}}
	v.store()
	rdb.AddHook(v)
	return Redis{rdb, v.advance, v.back, func() time.Time { return v.now }}
}

// virtual is a hook of the client that exchanges the scripts' clock.
type virtual struct {
	t     testing.TB
	rdb   redis.UniversalClient
	now   time.Time     // that scripts read
	lived time.Duration // that Advance has let pass; setting the clock back lengthens no key's life

	mu      sync.Mutex
	scripts map[string]string        // SHA-1 of the original → of the changed one, once it was sent
	ends    map[string]time.Duration // of keys; Redis itself would keep them for ever
}

func (v *virtual) store() {
	us := v.now.UnixMicro()
	text := fmt.Sprintf("%d %d", us/1e6, us%1e6)
	if err := v.rdb.Set(context.Background(), clockKey, text, 0).Err(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) advance(d time.Duration) {
	v.now = v.now.Add(d)
	v.store()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lived += d
	for k, end := range v.ends {
		if end > v.lived {
			continue
		}
		delete(v.ends, k)
		if err := v.rdb.Del(context.Background(), k).Err(); err != nil {
			v.t.Fatal(err)
		}
	}
}

// keep takes over the lives that a script has set.
func (v *virtual) keep(keys []string) {
	ctx := context.Background()
	v.mu.Lock()
	defer v.mu.Unlock()
	lives := make([]*redis.DurationCmd, len(keys))
	_, err := v.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			lives[i] = p.PTTL(ctx, k)
			p.Persist(ctx, k)
		}
		return nil
	})
	if err != nil {
		v.t.Error(err)
		return
	}
	for i, k := range keys {
		switch life := lives[i].Val(); life {
		case -1: // not set anew
		case -2:
			delete(v.ends, k)
		default:
			v.ends[k] = v.lived + life
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
		case "pttl":
			return v.life(ctx, cmd, next)
		default:
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if err == nil {
			v.keep(keysOf(cmd.Args()))
		}
		return err
	}
}

// life answers PTTL by the test's time.
func (v *virtual) life(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	answer, isLife := cmd.(*redis.DurationCmd)
	key, _ := cmd.Args()[1].(string)
	v.mu.Lock()
	defer v.mu.Unlock()
	if end, ok := v.ends[key]; ok && isLife && err == nil {
		answer.SetVal(end - v.lived)
	}
	return err
}

// keysOf reads the keys of EVAL or EVALSHA.
func keysOf(args []any) []string {
	n, _ := args[2].(int)
	keys := make([]string, n)
	for i := range keys {
		keys[i], _ = args[3+i].(string)
	}
	return keys
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
