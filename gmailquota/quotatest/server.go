package quotatest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds what only a hang makes fail.
const patience = time.Minute

// Server is a redis-server of a test. Its methods are not for concurrent use.
type Server struct {
	Addr string
	Dir  string // where it saves its data

	t    testing.TB
	path string
	args []string
	cmd  *exec.Cmd // nil while it is dead
}

// StartRedis is StartServer for those that need the address only.
func StartRedis(t testing.TB, args ...string) string {
	t.Helper()
	return StartServer(t, args...).Addr
}

// StartServer starts a redis-server from the PATH on a free port, which saves its data only when told to, and stops it
// with the test. args are further options for its command line. Without redis-server the test is skipped; where CI is
// set it fails.
func StartServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = append(s.args, "--save", "", "--appendonly", "no")
	s.args = append(s.args, args...)
	s.Restart()
	return s
}

// StartSentinel starts a Redis Sentinel that watches the server at master by the given name, and alone decides that it is
// dead, half a second after its last word. For the rest see StartServer.
func StartSentinel(t testing.TB, name, master string) *Server {
	t.Helper()
	s := newServer(t)
	config := filepath.Join(s.Dir, "sentinel.conf") // it writes what it learns into it
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = append([]string{config, "--sentinel"}, s.args...)
	s.Restart()
	host, port, _ := net.SplitHostPort(master)
	s.Do("SENTINEL", "MONITOR", name, host, port, 1)
	s.Do("SENTINEL", "SET", name, "down-after-milliseconds", 500)
	return s
}

// newServer is one that has not been started.
func newServer(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not on the PATH; CI must have it")
		}
		t.Skip("redis-server is not on the PATH: the tests on a real Redis are left out")
	}
	host, port := freePort(t)
	s := &Server{Addr: net.JoinHostPort(host, port), Dir: t.TempDir(), t: t, path: path}
	s.args = []string{"--port", port, "--bind", host, "--dir", s.Dir}
	t.Cleanup(s.Kill)
	return s
}

// Kill ends the server at once, as a crash does; its port is closed afterwards.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Restart starts a killed server on its old port, with what Save has saved. args are further options.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	all := append(append([]string{}, s.args...), args...)
	s.cmd = exec.CommandContext(context.WithoutCancel(s.t.Context()), s.path, all...) // ended by Kill, after what uses it
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.t.Fatalf("starting redis-server: %v", err)
	}
	waitFor(s.t, s.Addr)
}

// Save makes the server write its data to disk.
func (s *Server) Save() { s.Do("SAVE") }

// Do sends one command past everything that stands before the server, and returns its answer.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// Try is Do for a command that may fail.
func (s *Server) Try(args ...any) (any, error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, DialTimeout: patience, ReadTimeout: patience, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	answer, err := rdb.Do(context.Background(), args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return answer, err
}

// waitFor returns when somebody listens at addr.
func waitFor(t testing.TB, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var dialer net.Dialer
	eventually(t, "redis-server on "+addr+" accepts connections", func() bool {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// eventually waits until ok, which is asked every few milliseconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
