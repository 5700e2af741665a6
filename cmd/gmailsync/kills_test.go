package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
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

// betweenKills is how long a worker is left alone at most; half of it on average.
const betweenKills = 3 * time.Second

// TestKilledWorkersLoseNothing kills two workers, each with a mirror of its own and both on one Redis, again and again
// while they import and their mailboxes change. GMAILSYNC_KILLS, and GMAILSYNC_KILL_MESSAGES in each mailbox, make it
// larger. The simulator's user limit is raised, so that the import takes about as long as the kills: four messages are
// about a thread of 40 units. (kenn-io/msgvault#697, relaticle/relaticle#640)
func TestKilledWorkersLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	kills, messages := envInt(t, "GMAILSYNC_KILLS", 3), envInt(t, "GMAILSYNC_KILL_MESSAGES", 200)
	limit := max(6_000, messages/4*40*int(time.Minute/(betweenKills/2))/kills)
	const inFlight = 10 // guard.inFlight
	redis := quotatest.StartRedis(t)
	sim := startSim(t, "--accounts", "2", "--messages", fmt.Sprint(messages), "--user-limit", fmt.Sprint(limit),
		"--latency", "20ms", "--pubsub", "127.0.0.1:0")
	workers := make([]*victim, len(sim.Accounts))
	for i, account := range sim.Accounts {
		w := &victim{sim: sim, address: account.Address, mail: mailboxOf(t, sim, account.Address)}
		w.config = writeConfig(t, sim, fmt.Sprintf(`
redis: {url: "redis://%s", timeout: 2s}
pubsub: {endpoint: %q, prefix: worker%d}
guard: {userLimit: %d, failOpen: false}
consumers: {pollInterval: 1s}
`, redis, sim.PubSub, i, limit))
		addAccount(t, w.config, account)
		w.process = start(t, "run", "-c", w.config)
		workers[i] = w
	}
	began, importing := time.Now(), 0
	for range kills {
		time.Sleep(rand.N(betweenKills))
		w := workers[rand.IntN(len(workers))]
		_ = w.process.signal(syscall.SIGKILL)
		if s := statusOf(t, w.config); !isLive(s[0]) {
			importing++
		}
		for _, w := range workers {
			w.change(t)
		}
		w.process = start(t, "run", "-c", w.config)
	}
	killing := time.Since(began)
	for _, w := range workers {
		waitFor(t, w.config, w.caughtUp)
	}
	took, stats, threads := time.Since(began), getsOf(t, sim), int64(0) // before verify asks Gmail as well
	for _, w := range workers {
		mustCommand(t, "verify", "-c", w.config)
		requireEqualMirror(t, sim, w.config, w.address)
		threads += int64(len(stats.Gets[w.address]))
	}
	most := threads*101/100 + int64(kills*inFlight)
	got := stats.Calls["threads.get"]
	t.Logf("%d kills, %d of them during an import, in %s; all caught up after %s; %d threads; threads.get %d, at most %d"+
		" allowed; messages.get %d; refused %d; at most %d of %d units of a user in 60 s", kills, importing,
		killing.Round(time.Second), took.Round(time.Second), threads, got, most, stats.Calls["messages.get"], stats.Refused, stats.MaxUserUnits60s, limit)
	if got > most || stats.Refused != 0 {
		t.Errorf("threads.get called %d times, want at most %d; refused %d, want 0", got, most, stats.Refused)
	}
}

// victim is a worker, its account, and the simulated owner of that mailbox.
type victim struct {
	sim     simReady
	config  string
	process *process
	address string
	mail    []gmailsim.Snapshot // as it was at the start, but for what was deleted
	last    uint64              // history id of the last change
}

// change brings a new mail and a reply into the mailbox, and relabels, trashes or deletes an old message.
func (v *victim) change(t *testing.T) {
	t.Helper()
	i := rand.IntN(len(v.mail))
	old := v.mail[i]
	v.deliver(t, "From: b@example.com\nSubject: new\n\nnew\n")
	v.deliver(t, fmt.Sprintf("From: b@example.com\nSubject: re\nIn-Reply-To: %s\n\nreply\n", messageID(old)))
	switch rand.IntN(3) {
	case 0:
		v.control(t, "label", map[string]any{"id": old.ID, "add": []string{"STARRED"}})
	case 1:
		v.control(t, "trash", map[string]any{"id": old.ID})
	default:
		v.control(t, "delete", map[string]any{"id": old.ID})
		v.mail = slices.Delete(v.mail, i, i+1)
	}
}

func (v *victim) deliver(t *testing.T, raw string) {
	t.Helper()
	v.control(t, "deliver", map[string]any{"raw": []byte(raw)})
}

// control changes the mailbox as the simulator's interface says.
func (v *victim) control(t *testing.T, name string, body map[string]any) {
	t.Helper()
	body["address"] = v.address
	var answer struct {
		HistoryID uint64 `json:"historyId"`
	}
	postControl(t, v.sim, name, body, &answer)
	v.last = answer.HistoryID
}

// caughtUp tells that the mirror says of itself that it has everything.
func (v *victim) caughtUp(s worker.AccountStatus) bool {
	cursor, err := strconv.ParseUint(s.HistoryID, 10, 64)
	return err == nil && isLive(s) && cursor >= v.last && s.DeadLetters == 0
}

func messageID(m gmailsim.Snapshot) string {
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name, "Message-ID") {
			return h.Value
		}
	}
	return ""
}

// mailboxOf reads a simulated mailbox.
func mailboxOf(t *testing.T, sim simReady, address string) []gmailsim.Snapshot {
	t.Helper()
	var mailbox []gmailsim.Snapshot
	getJSON(t, sim.Endpoint+"_sim/mailbox?address="+address, &mailbox)
	return mailbox
}

// simGets is the simulator's own meter, with the threads.get calls of each thread by address.
type simGets struct {
	gmailsim.Stats
	Gets map[string]map[string]int `json:"gets"`
}

func getsOf(t *testing.T, sim simReady) simGets {
	t.Helper()
	var stats simGets
	getJSON(t, sim.Endpoint+"_sim/stats?gets=1", &stats)
	return stats
}

// postControl calls the simulator's interface; into may be nil.
func postControl(t *testing.T, sim simReady, name string, body, into any) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sim.Endpoint+"_sim/"+name, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, req, into)
}
