package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
	"github.com/gmailsync/gmailsync/worker"
)

// envInt reads a size from the environment.
func envInt(t *testing.T, name string, standard int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestKilledWorkersLoseNothing kills two workers, each with a mirror of its own and on one Redis, again and again while they
// import and mail keeps coming. GMAILSYNC_KILLS and GMAILSYNC_KILL_MESSAGES, in each mailbox, make it larger; the user's limit is raised so
// that an import outlasts neither the kills nor anybody's patience. (kenn-io/msgvault#697, relaticle/relaticle#640)
func TestKilledWorkersLoseNothing(t *testing.T) {
	if os.Getenv("GMAILSYNC_KILLS") == "" {
		t.Skip("set GMAILSYNC_KILLS to the number of kills")
	}
	kills, messages := envInt(t, "GMAILSYNC_KILLS", 3), envInt(t, "GMAILSYNC_KILL_MESSAGES", 400)
	const limit, inFlight = 120_000, 10
	redis := quotatest.StartRedis(t)
	sim := startSim(t, "--accounts", "2", "--messages", fmt.Sprint(messages), "--user-limit", fmt.Sprint(limit), "--latency", "20ms", "--pubsub", "127.0.0.1:0")
	var configs []string
	var workers []*process
	for i, account := range sim.Accounts {
		config := writeConfig(t, sim, fmt.Sprintf(`
redis: {url: "redis://%s", timeout: 2s}
pubsub: {endpoint: %q, prefix: worker%d}
guard: {userLimit: %d, failOpen: false}
consumers: {pollInterval: 1s}
`, redis, sim.PubSub, i, limit))
		configs = append(configs, config)
		addAccount(t, config, account)
		workers = append(workers, start(t, "run", "-c", config))
	}
	for range kills {
		time.Sleep(time.Second + rand.N(2*time.Second)) // a worker needs a while to be at work
		i := rand.IntN(len(workers))
		_ = workers[i].signal(syscall.SIGKILL)
		for _, account := range sim.Accounts {
			deliver(t, sim, account.Address)
		}
		workers[i] = start(t, "run", "-c", configs[i])
	}
	listed := 0
	for i, config := range configs {
		live := waitFor(t, config, func(s worker.AccountStatus) bool { return isLive(s) && caughtUp(t, config, s) })
		listed += live.Run.Listed
		requireEqualMirror(t, sim, config, sim.Accounts[i].Address)
	}
	stats := simStats(t, sim)
	t.Logf("%d kills, %d threads listed, threads.get %d, messages.get %d, refused %d, at most %d units of a user in 60 s", kills, listed,
		stats.Calls["threads.get"], stats.Calls["messages.get"], stats.Refused, stats.MaxUserUnits60s)
	if got, most := stats.Calls["threads.get"], int64(listed)*101/100+int64(kills*inFlight); got > most || stats.Refused != 0 {
		t.Errorf("threads.get called %d times, want at most %d; refused %d, want 0", got, most, stats.Refused)
	}
}

// caughtUp tells that nothing differs, by the history ids of the threads.
func caughtUp(t *testing.T, config string, s worker.AccountStatus) bool {
	t.Helper()
	return time.Since(s.HistoryAt) < 10*time.Second && s.DeadLetters == 0 && verified(t, config)
}

func verified(t *testing.T, config string) bool {
	t.Helper()
	_, _, code := command(t, "verify", "-c", config)
	return code == exitDone
}

// deliver brings one new message into a simulated mailbox.
func deliver(t *testing.T, sim simReady, address string) {
	t.Helper()
	raw := "From: b@example.com\nSubject: live\n\n" + strings.Repeat("text ", 20)
	body, err := json.Marshal(map[string]string{"address": address, "raw": base64.StdEncoding.EncodeToString([]byte(raw))})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sim.Endpoint+"_sim/deliver", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("deliver: %s", resp.Status)
	}
}
