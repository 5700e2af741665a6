package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// startWith builds and starts a worker whose log is kept.
func (r *rig) startWith(opts ...Option) *observer.ObservedLogs {
	r.Helper()
	core, logs := observer.New(zap.InfoLevel)
	w, err := New(r.Context(), r.cfg, append(opts, WithPushListener(r.push), WithLogger(zap.New(core)))...)
	r.must(err)
	r.worker = w
	r.must(w.Start(r.Context()))
	return logs
}

// getsentry/sentry#122038
func TestARedisThatDoesNotSuitIsSaidAtTheStart(t *testing.T) {
	addr := quotatest.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	r := newRig(t)
	r.cfg.Redis.URL = "redis://" + addr
	logs := r.startWith()
	found := func() []observer.LoggedEntry { return logs.FilterMessage("check of redis.url").All() }
	r.eventually("a warning", func() bool { return len(found()) > 0 })
	r.stop()
	if all := found(); len(all) != 1 || all[0].Level != zap.WarnLevel || !strings.Contains(fmt.Sprint(all[0].ContextMap()["found"]), "allkeys-lru") {
		t.Errorf("logged %+v; want one warning of the policy", all)
	}
}

// Each way in which guard.failOpen is changed in the file, and what the guard does then. Redis is dead all the time.
func TestFailOpenFollowsTheFile(t *testing.T) {
	for name, c := range map[string]struct {
		layOut func(r *rig, dir, text string) string
		edit   func(r *rig, dir, path, text string)
	}{
		"written in place": {plain, func(r *rig, _, path, text string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			r.must(err)
			_, err = f.WriteString(text) // in one piece and as long as what was there: no reader sees a part
			r.must(errors.Join(err, f.Close()))
		}},
		"an editor that renames": {plain, func(r *rig, dir, path, text string) {
			r.write(filepath.Join(dir, ".c.yaml.swp"), text)
			r.must(os.Rename(filepath.Join(dir, ".c.yaml.swp"), path))
		}},
		"a ConfigMap of Kubernetes": {
			func(r *rig, dir, text string) string {
				mount(r, dir, text)
				r.must(os.Symlink(filepath.Join("..data", "c.yaml"), filepath.Join(dir, "c.yaml")))
				return filepath.Join(dir, "c.yaml")
			},
			func(r *rig, dir, _, text string) { mount(r, dir, text) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := quotatest.StartServer(t)
			server.Kill()
			r := newRig(t)
			r.cfg.Redis.URL = "redis://" + server.Addr
			r.cfg.Guard.FailOpen = true
			dir := t.TempDir()
			path := c.layOut(r, dir, setting("true"))
			logs := r.startWith(WithConfigFile(path))
			if !r.callsPass() {
				t.Fatal("calls fail at the start")
			}
			c.edit(r, dir, path, setting("false"))
			r.eventually("calls fail", func() bool { return !r.callsPass() })

			c.edit(r, dir, path, setting("perhaps"))
			broken := func() []observer.LoggedEntry {
				return logs.Filter(func(e observer.LoggedEntry) bool {
					return strings.Contains(e.Message, "the old settings stay") && strings.Contains(fmt.Sprint(e.ContextMap()["error"]), "perhaps")
				}).All()
			}
			r.eventually("the broken edit is said", func() bool { return len(broken()) > 0 })
			if r.callsPass() {
				t.Error("a broken edit has changed the guard")
			}
			c.edit(r, dir, path, setting("true"))
			r.eventually("calls pass again", r.callsPass)
			if n := len(broken()); n != 1 {
				t.Errorf("the broken edit was said %d times", n)
			}
		})
	}
}

func setting(failOpen string) string { return fmt.Sprintf("guard:\n  failOpen: %-10s\n", failOpen) }

func (r *rig) write(path, text string) {
	r.Helper()
	r.must(os.WriteFile(path, []byte(text), 0o600))
}

func plain(r *rig, dir, text string) string {
	path := filepath.Join(dir, "c.yaml")
	r.write(path, text)
	return path
}

// mount puts a new version of the file in place as the kubelet does: ..data is a link that is swapped.
func mount(r *rig, dir, text string) {
	r.Helper()
	version, err := os.MkdirTemp(dir, "..2026_11_30_")
	r.must(err)
	r.write(filepath.Join(version, "c.yaml"), text)
	r.must(os.Symlink(filepath.Base(version), filepath.Join(dir, "..data_tmp")))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	r.must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old != "" {
		r.must(os.RemoveAll(filepath.Join(dir, old)))
	}
}

// callsPass tells what the guard does with a call while Redis is away.
func (r *rig) callsPass() bool {
	r.Helper()
	_, err := r.worker.mirror.guard.Acquire(r.Context(), gmailquota.Request{Account: "a", Method: "getProfile"})
	var away *gmailquota.UnavailableError
	var denied *gmailquota.DeniedError // by the local bucket: it is not Redis' being away
	if err != nil && !errors.As(err, &away) && !errors.As(err, &denied) {
		r.Fatal(err)
	}
	return away == nil
}

// alicebob/miniredis#48: TIME and the expiry of keys are two clocks in miniredis, so a test that moves one of them passes for
// reasons that are not real. The tests' clock moves both.
func TestTheTestsClockMovesBothOfMiniredis(t *testing.T) {
	mini := miniredis.RunT(t)
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	clock := quotatest.NewClock(mini, start)
	rdb := quotatest.Client(t, mini.Addr())
	if err := rdb.Set(t.Context(), "key", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		by   time.Duration
		left int64
	}{{59 * time.Second, 1}, {time.Second, 0}} {
		clock.Advance(step.by)
		now, err := rdb.Time(t.Context()).Result()
		if err != nil || !now.Equal(clock.Now()) {
			t.Errorf("TIME is %v, %v; want %v", now, err, clock.Now())
		}
		if left, err := rdb.Exists(t.Context(), "key").Result(); err != nil || left != step.left {
			t.Errorf("after %v: %d keys, %v; want %d", clock.Now().Sub(start), left, err, step.left)
		}
	}
}
