package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker"
)

// patience is how long a test waits for another process before it fails: far above what any machine needs.
const patience = 4 * time.Minute

var built struct {
	once sync.Once
	dir  string
	err  error
}

// TestMain has the folder of the program, which outlives each test.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gmailsync-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// binary builds the program once for all tests of this package.
func binary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(built.dir, "gmailsync")
	built.once.Do(func() {
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return path
}

// process is a running gmailsync; the end of the test kills it if it still runs.
type process struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	exited chan error
	stderr *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(context.Background(), binary(t), args...), exited: make(chan error, 1), stderr: &lockedBuffer{}}
	p.cmd.Stderr = p.stderr
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	p.out = bufio.NewReader(stdout)
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.signal(syscall.SIGKILL)
		_ = stdout.Close()
		if t.Failed() {
			t.Logf("gmailsync %v: %s", args, p.stderr)
		}
	})
	return p
}

// signal sends s and waits for the end of the process.
func (p *process) signal(s syscall.Signal) error {
	_ = p.cmd.Process.Signal(s) // it may have ended
	err := <-p.exited
	p.exited <- err
	return err
}

// startSim runs the simulated Gmail and returns what it prints once it listens.
func startSim(t testing.TB, args ...string) simReady {
	t.Helper()
	p := start(t, append([]string{"sim", "--listen", "127.0.0.1:0"}, args...)...)
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("sim: %v: %s", err, p.stderr)
	}
	var ready simReady
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatalf("sim: %v in %s", err, line)
	}
	return ready
}

// simStats reads the simulator's own meter.
func simStats(t *testing.T, sim simReady) gmailsim.Stats {
	t.Helper()
	var stats gmailsim.Stats
	getJSON(t, sim.Endpoint+"_sim/stats", &stats)
	return stats
}

func getJSON(t *testing.T, url string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, req, into)
}

// exchange sends a request and reads the JSON answer into into, which may be nil.
func exchange(t *testing.T, req *http.Request, into any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %v %s", req.Method, req.URL.Path, resp.StatusCode, err, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
}

// writeConfig writes a configuration against sim with a store of its own and returns its path.
func writeConfig(t *testing.T, sim simReady, extra string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("gmail: {endpoint: %q, tokenURL: %q, clientID: test}\nstore: {path: %q}\n%s",
		sim.Endpoint, sim.TokenURL, filepath.Join(dir, "mirror.db"), extra)
	path := filepath.Join(dir, "gmailsync.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs one command to its end and returns what it printed and its exit code.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func mustCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := command(t, args...)
	if code != exitDone {
		t.Fatalf("gmailsync %v: exit %d: %s%s", args, code, out, errs)
	}
	return out
}

// addAccount connects the simulator's account to a store.
func addAccount(t *testing.T, config string, account gmailsim.Account) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(account.RefreshToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustCommand(t, "account", "add", "-c", config, "--address", account.Address, "--refresh-token-file", file)
}

func statusOf(t *testing.T, config string) []worker.AccountStatus {
	t.Helper()
	var accounts []worker.AccountStatus
	if err := json.Unmarshal([]byte(mustCommand(t, "status", "-c", config, "--json")), &accounts); err != nil {
		t.Fatal(err)
	}
	return accounts
}

// waitFor waits until the only account of a store is as wanted.
func waitFor(t *testing.T, config string, wanted func(worker.AccountStatus) bool) worker.AccountStatus {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if s := statusOf(t, config); len(s) == 1 && wanted(s[0]) {
			return s[0]
		}
		time.Sleep(50 * time.Millisecond) // between two looks at another process
	}
	t.Fatalf("not reached after %s: %+v", patience, statusOf(t, config))
	return worker.AccountStatus{}
}
