package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// stage is a guard before a real Redis that can be put into trouble, with a proxy between the two. The guard's own clock
// moves by the test only, so that a busy machine changes nothing.
type stage struct {
	*testing.T
	server *quotatest.Server
	proxy  *quotatest.Proxy
	clock  *manualClock
	guard  *gmailquota.Guard
	said   strings.Builder // the errors so far
	undo   func()          // what ends the trouble, where beginning it decides that
}

// trouble is one way in which Redis gives no decisions.
type trouble struct {
	name, says string   // in one of the errors
	args       []string // of redis-server
	direct     bool     // past the proxy
	impatient  bool     // Redis gets 100 ms only, because it would never answer
	prepare    func(*stage)
	begin, end func(*stage)
}

// deaf is what is waited for a Redis that does not answer.
const deaf = 100 * time.Millisecond

// lateBy makes an answer come when nobody waits for it any more.
const lateBy = 3 * deaf

var troubles = []trouble{
	{name: "dead", says: "connection refused", direct: true,
		begin: func(s *stage) { s.server.Kill() }, end: func(s *stage) { s.server.Restart() }},
	// erpc/erpc#1113
	{name: "hung", says: "timeout", impatient: true,
		begin: func(s *stage) { s.proxy.Hang() }, end: func(s *stage) { s.proxy.Pass() }},
	{name: "slow", says: "timeout", impatient: true,
		begin: func(s *stage) { s.proxy.Delay(lateBy) }, end: func(s *stage) { s.proxy.Pass() }},
	{name: "cut in the middle of an answer", says: "EOF",
		begin: func(s *stage) { s.proxy.Cut() }, end: func(s *stage) { s.proxy.Pass() }},
	// redis/go-redis#2229
	{name: "READONLY", says: "READONLY", begin: becomeReplica, end: func(s *stage) { s.server.Do("REPLICAOF", "NO", "ONE") }},
	{name: "LOADING", says: "LOADING", begin: loadForAnHour,
		end: func(s *stage) { s.server.Do("CONFIG", "SET", "key-load-delay", 0) }},
	// PostHog/posthog#60838; the guard's own keys share a slot, so that no Redis says this
	{name: "CROSSSLOT", says: "CROSSSLOT",
		begin: func(s *stage) { s.proxy.Fail("CROSSSLOT Keys in request don't hash to the same slot") },
		end:   func(s *stage) { s.proxy.Pass() }},
	{name: "CLUSTERDOWN", says: "CLUSTERDOWN", args: []string{"--cluster-enabled", "yes"}, prepare: becomeCluster,
		begin: func(s *stage) { s.server.Do("CLUSTER", "DELSLOTS", s.slot()) },
		end:   func(s *stage) { s.server.Do("CLUSTER", "ADDSLOTS", s.slot()) }},
	{name: "a full disk", says: "MISCONF", args: []string{"--dbfilename", "blocked"}, begin: fillDisk,
		end: func(s *stage) { s.must(os.RemoveAll(filepath.Join(s.server.Dir, "blocked"))); s.server.Save() }},
	{name: "full memory", says: "OOM",
		begin: func(s *stage) { s.server.Do("CONFIG", "SET", "maxmemory", 1) },
		end:   func(s *stage) { s.server.Do("CONFIG", "SET", "maxmemory", 0) }},
	{name: "BUSY", says: "BUSY", args: []string{"--busy-reply-threshold", "1"}, begin: runForEver,
		end: func(s *stage) { s.server.Do("SCRIPT", "KILL"); s.undo() }},
}

func newStage(t *testing.T, tr trouble, change func(*gmailquota.Config)) *stage {
	t.Helper()
	server := quotatest.StartServer(t, tr.args...)
	s := &stage{T: t, server: server, proxy: quotatest.NewProxy(t, server.Addr), clock: &manualClock{now: noon}}
	cfg := testConfig(change)
	if tr.impatient {
		cfg.RedisTimeout = deaf
	}
	addr := s.proxy.Addr
	if tr.direct {
		addr = server.Addr
	}
	opts, err := gmailquota.RedisOptions("redis://"+addr, cfg.RedisTimeout)
	s.must(err)
	rdb := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	s.guard, err = gmailquota.New(rdb, cfg, gmailquota.WithClock(s.clock.Now))
	s.must(err)
	if tr.prepare != nil {
		tr.prepare(s)
	}
	s.recovers()
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) slot() any {
	_, key := s.guard.Keys("")
	return s.server.Do("CLUSTER", "KEYSLOT", key)
}

// eventually asks until it is so; only a hang fails.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// recovers asks, and lets the clock move on, until Redis decides. It does nothing about the trouble.
func (s *stage) recovers() {
	s.Helper()
	eventually(s.T, "Redis decides", func() bool {
		before := s.guard.Stats().Unavailable
		gr, err := s.guard.Acquire(context.Background(), request("a"))
		if err == nil {
			gr.Release()
		}
		s.clock.Advance(2 * time.Second)
		return s.guard.Stats().Unavailable == before
	})
}

func becomeReplica(s *stage) {
	host, port, _ := strings.Cut(quotatest.StartRedis(s.T, "--repl-diskless-sync-delay", "0"), ":")
	s.server.Do("REPLICAOF", host, port)
	eventually(s.T, "the replica is up", func() bool {
		return strings.Contains(fmt.Sprint(s.server.Do("INFO", "replication")), "master_link_status:up")
	})
}

// loadForAnHour restarts Redis with data that it reads as slowly as from a bad disk.
func loadForAnHour(s *stage) {
	s.server.Do("EVAL", "for i = 1, 1000 do redis.call('SET', 'filler-' .. i, string.rep('x', 2048)) end", 0)
	s.server.Do("CONFIG", "SET", "rdbcompression", "no")
	s.server.Save()
	s.server.Restart("--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024")
	eventually(s.T, "Redis says that it is loading", func() bool {
		_, err := s.server.Try("GET", "filler-1")
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
}

func becomeCluster(s *stage) {
	s.server.Do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	eventually(s.T, "the cluster serves", func() bool {
		return strings.Contains(fmt.Sprint(s.server.Do("CLUSTER", "INFO")), "cluster_state:ok")
	})
}

// fillDisk makes saving fail: a folder is where the file should be. A full disk looks the same to Redis, and cannot be
// had without root.
func fillDisk(s *stage) {
	s.must(os.MkdirAll(filepath.Join(s.server.Dir, "blocked", "full"), 0o700))
	s.server.Do("CONFIG", "SET", "save", "3600 1")
	s.server.Do("BGSAVE")
	eventually(s.T, "saving has failed", func() bool {
		return strings.Contains(fmt.Sprint(s.server.Do("INFO", "persistence")), "rdb_last_bgsave_status:err")
	})
}

func runForEver(s *stage) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.server.Try("EVAL", "while true do end", 0)
	}()
	s.undo = func() { <-ended }
	eventually(s.T, "Redis says that it is busy", func() bool {
		_, err := s.server.Try("PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
}

// Whatever the trouble: with FailOpen off no call is made and the quoted wait is the one after which Redis is asked
// again; and it ends by itself.
// PostHog/posthog#60838, envoyproxy/ratelimit#462, #978
func TestInTroubleNothingIsCalled(t *testing.T) {
	t.Parallel()
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tr, func(*gmailquota.Config) {})
			tr.begin(s)
			for range 8 {
				wait := s.unavailable()
				asked := s.guard.Stats().RedisCalls
				s.clock.Advance(wait - time.Microsecond)
				s.unavailable()
				if n := s.guard.Stats().RedisCalls; n != asked {
					t.Fatalf("asked %d times before the quoted %v were over", n-asked, wait)
				}
				s.clock.Advance(time.Microsecond)
				s.unavailable()
				if s.guard.Stats().RedisCalls == asked {
					t.Fatalf("Redis is not asked after the quoted %v", wait)
				}
			}
			if !strings.Contains(s.said.String(), tr.says) {
				t.Errorf("the errors were %s; want the trouble to be %s", s.said.String(), tr.says)
			}
			tr.end(s)
			s.recovers()
		})
	}
}

// unavailable asks for a call that must not be made.
func (s *stage) unavailable() time.Duration {
	s.Helper()
	gr, err := s.guard.Acquire(context.Background(), request("a"))
	var away *gmailquota.UnavailableError
	if gr != nil || !errors.As(err, &away) {
		s.Fatalf("%v, %v; want an UnavailableError", gr, err)
	}
	if away.Wait <= 0 || away.Wait > 2*time.Second {
		s.Fatalf("a wait of %v; want one of at most 2 s, after which Redis is asked again", away.Wait)
	}
	fmt.Fprintln(&s.said, strings.ReplaceAll(away.Err.Error(), context.DeadlineExceeded.Error(), "timeout"))
	return away.Wait
}

// Whatever the trouble: with FailOpen on one of three workers keeps to its third of the limit and uses most of it; and it
// ends by itself.
func TestInTroubleAWorkerKeepsItsShare(t *testing.T) {
	t.Parallel()
	for _, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tr, func(c *gmailquota.Config) { c.FailOpen, c.Workers = true, 3 })
			tr.begin(s)
			meter := &quotatest.SlidingMinute{Limit: 6000 / 3}
			began, before := s.clock.Now(), s.guard.Stats()
			const most = 90 * time.Second
			var units int64
			for s.clock.Now().Sub(began) < most {
				gr, err := s.guard.Acquire(context.Background(), immediate("a"))
				var denied *gmailquota.DeniedError
				if errors.As(err, &denied) {
					s.clock.Advance(denied.Wait)
					continue
				}
				s.must(err)
				if !meter.Charge(s.clock.Now().Sub(began), gr.Units()) {
					t.Fatal("more than a third of the limit in 60 s")
				}
				units += gr.Units()
				gr.Release()
			}
			if units < 2000*90/60*85/100 {
				t.Errorf("%d units in 90 s; want most of the share of 3,000", units)
			}
			after := s.guard.Stats()
			if after.Unavailable == before.Unavailable || after.Fallback-before.Fallback != after.Unavailable-before.Unavailable {
				t.Errorf("stats %+v, before %+v; want the local buckets to have decided", after, before)
			}
			tr.end(s)
			s.recovers()
		})
	}
}
