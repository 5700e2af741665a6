package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
	"github.com/gmailsync/gmailsync/worker"
)

func isLive(s worker.AccountStatus) bool { return s.Live() && s.Run.Open == 0 }

// TestKilledImportGoesOnWhereItWas kills a worker, everything embedded, in the middle of an import: after a restart the
// mirror is whole, and only threads that were in flight are fetched again (kenn-io/msgvault#697, relaticle/relaticle#640).
func TestKilledImportGoesOnWhereItWas(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "400", "--user-limit", "60000", "--latency", "10ms")
	config := writeConfig(t, sim, "guard: {userLimit: 60000}\n")
	first := start(t, "run", "-c", config)
	addAccount(t, config, sim.Accounts[0])
	mid := waitFor(t, config, func(s worker.AccountStatus) bool { return s.Run.Stored > 20 })
	if mid.Run.Open == 0 {
		t.Fatalf("the import was over before the kill: %+v", mid.Run)
	}
	_ = first.signal(syscall.SIGKILL)

	second := start(t, "run", "-c", config)
	live := waitFor(t, config, isLive)
	if err := second.signal(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	mustCommand(t, "verify", "-c", config)
	requireEqualMirror(t, sim, config, sim.Accounts[0].Address)
	stats := simStats(t, sim)
	const inFlight = 10 // guard.inFlight, per kill
	verified := int64(0)
	if got, most := stats.Calls["threads.get"], int64(live.Run.Listed+inFlight)+verified; got > most {
		t.Errorf("threads.get called %d times for %d threads and one kill, want at most %d", got, live.Run.Listed, most)
	}
	if stats.Refused != 0 {
		t.Errorf("Gmail refused %d calls", stats.Refused)
	}
}

// requireEqualMirror compares an export with the simulated mailbox by ids, threads, labels and headers.
func requireEqualMirror(t *testing.T, sim simReady, config, address string) {
	t.Helper()
	mailbox := mailboxOf(t, sim, address)
	want := map[string]gmailsim.Snapshot{}
	for _, s := range mailbox {
		want[s.ID] = s
	}
	for line := range strings.Lines(mustCommand(t, "export", "-c", config, "--account", address)) {
		var m worker.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		s, ok := want[m.ID]
		if !ok {
			t.Errorf("message %s is in the mirror only", m.ID)
			continue
		}
		delete(want, m.ID)
		if m.ThreadID != s.ThreadID || !slices.Equal(m.LabelIDs, slices.Sorted(slices.Values(s.Labels))) ||
			!slices.EqualFunc(m.Headers, s.Headers, equalHeader) {
			t.Errorf("message %s differs", m.ID)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d of %d messages are missing in the mirror", len(want), len(mailbox))
	}
}

// TestTwoWorkersShareAProject runs two workers with a store, a Pub/Sub prefix and an account each on one Redis. Each
// user alone may use up the project's limit, so only the shared project bucket keeps both below it.
func TestTwoWorkersShareAProject(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes, since Gmail measures by minutes")
	}
	redis := quotatest.StartRedis(t)
	sim := startSim(t, "--accounts", "2", "--messages", "420", "--project-limit", "7200", "--pubsub", "127.0.0.1:0")
	var configs []string
	for i, account := range sim.Accounts {
		config := writeConfig(t, sim, `
redis: {url: "redis://`+redis+`", timeout: 2s}
pubsub: {endpoint: "`+sim.PubSub+`", prefix: worker`+string(rune('a'+i))+`}
guard: {projectLimit: 7200, failOpen: false}
`)
		configs = append(configs, config)
		addAccount(t, config, account)
	}
	for _, config := range configs {
		start(t, "run", "-c", config)
	}
	for i, config := range configs {
		waitFor(t, config, isLive)
		requireEqualMirror(t, sim, config, sim.Accounts[i].Address)
	}
	stats := simStats(t, sim)
	if stats.Refused != 0 || stats.MaxProjectUnits60s > 7200 {
		t.Errorf("refused %d, at most %d units of the project in 60 s, want 0 and 7200", stats.Refused, stats.MaxProjectUnits60s)
	}
	if stats.MaxProjectUnits60s < 6500 {
		t.Errorf("only %d units in 60 s: the workers were never near the limit", stats.MaxProjectUnits60s)
	}
}
