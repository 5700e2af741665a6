package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/worker"
)

// fail arms a fault of the simulator; fields are those of gmailsim.Fault.
func fail(t *testing.T, sim simReady, fault map[string]any) {
	t.Helper()
	postControl(t, sim, "faults", fault, nil)
}

// failFetches makes all mail unreadable. (A second try asks for the message's whole thread.)
func failFetches(t *testing.T, sim simReady) {
	t.Helper()
	for _, method := range []string{"messages.get", "threads.get"} {
		fail(t, sim, map[string]any{"method": method, "status": 400, "times": -1})
	}
}

// heal disarms all faults.
func heal(t *testing.T, sim simReady) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, sim.Endpoint+"_sim/faults", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func lettersOf(t *testing.T, config string) []worker.DeadLetter {
	t.Helper()
	var letters []worker.DeadLetter
	if err := json.Unmarshal([]byte(mustCommand(t, "dlq", "list", "-c", config, "--json")), &letters); err != nil {
		t.Fatal(err)
	}
	return letters
}

// What cannot be fetched ends as a dead letter with its cause, beside a running worker that goes on, and is fetched after a
// replay. What is dropped is missing until a resync. (garrytan/gbrain#4959)
func TestDeadLettersAreListedReplayedAndDropped(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "60", "--user-limit", "60000")
	config := writeConfig(t, sim, "redis: {timeout: 5s}\nguard: {userLimit: 60000}\nconsumers: {maxAttempts: 2, pollInterval: 1s}\n")
	owner := &victim{sim: sim, address: sim.Accounts[0].Address}
	thread := mailboxOf(t, sim, owner.address)[0].ThreadID
	fail(t, sim, map[string]any{"method": "threads.get", "id": thread, "status": 500, "times": -1})
	addAccount(t, config, sim.Accounts[0])
	start(t, "run", "-c", config)
	s := waitFor(t, config, isLive)
	if s.Reason != "incomplete: 1" || s.DeadLetters != 1 || s.Run.Failed != 1 || s.Run.Stored != s.Run.Listed-1 {
		t.Errorf("after an import without one thread: %+v", s)
	}
	failFetches(t, sim)
	owner.deliver(t, "From: b@example.com\nSubject: new\n\nnew\n")
	waitFor(t, config, func(s worker.AccountStatus) bool { return s.Reason == "incomplete: 2" && s.DeadLetters == 2 })
	if _, _, code := command(t, "verify", "-c", config); code != exitFailed {
		t.Errorf("verify: exit %d with a thread and a message missing", code)
	}

	letters := lettersOf(t, config)
	if len(letters) != 2 || letters[0].ThreadID != thread || letters[0].Kind != "thread-batch" || letters[0].Attempts != 2 ||
		letters[1].MessageID == "" || letters[1].Kind != "history" || letters[1].Attempts != 2 {
		t.Fatalf("letters %+v", letters)
	}
	table := mustCommand(t, "dlq", "list", "-c", config, "--account", owner.address)
	for _, want := range []string{thread, letters[1].MessageID, "threads.get: passing (500 backendError)", "threads.get: permanent (400 invalidArgument)"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in the table:\n%s", want, table)
		}
	}
	if _, _, code := command(t, "dlq", "replay", "-c", config, "999"); code != exitFailed {
		t.Errorf("replay of a letter that does not exist: exit %d", code)
	}

	heal(t, sim)
	if out := mustCommand(t, "dlq", "replay", "-c", config, "--all"); !strings.HasPrefix(out, "2 replayed") {
		t.Errorf("replay said %q", out)
	}
	whole := func(s worker.AccountStatus) bool {
		return isLive(s) && s.Reason == "" && s.DeadLetters == 0 && len(lettersOf(t, config)) == 0
	}
	owner.waitForAll(t, config, whole)

	failFetches(t, sim)
	owner.deliver(t, "From: b@example.com\nSubject: newer\n\nnewer\n")
	waitFor(t, config, func(s worker.AccountStatus) bool { return s.DeadLetters == 1 })
	id := strconv.FormatInt(lettersOf(t, config)[0].ID, 10)
	if out := mustCommand(t, "dlq", "drop", "-c", config, id); out != "1 dropped\n" {
		t.Errorf("drop said %q", out)
	}
	waitFor(t, config, whole)
	if _, _, code := command(t, "verify", "-c", config); code != exitFailed {
		t.Errorf("verify: exit %d with a dropped message", code)
	}
	heal(t, sim)
	mustCommand(t, "account", "resync", "-c", config, "--account", owner.address)
	owner.waitForAll(t, config, whole)
}

// waitForAll waits until the mirror has all that its owner did, as status and verify say.
func (v *victim) waitForAll(t *testing.T, config string, wanted func(worker.AccountStatus) bool) {
	t.Helper()
	waitFor(t, config, func(s worker.AccountStatus) bool {
		if !wanted(s) || !v.caughtUp(s) {
			return false
		}
		_, _, code := command(t, "verify", "-c", config)
		return code == exitDone
	})
	requireEqualMirror(t, v.sim, config, v.address)
}

// A pause that Gmail asked for is no failure of the account, and is said with its end. (rowboatlabs/rowboat#926)
func TestStatusSaysUntilWhenGmailPauses(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "5")
	config := writeConfig(t, sim, "redis: {timeout: 5s}\nconsumers: {pollInterval: 1s}\n")
	addAccount(t, config, sim.Accounts[0])
	start(t, "run", "-c", config)
	waitFor(t, config, isLive)
	until := time.Now().Add(15 * time.Minute).Truncate(time.Second).Add(500 * time.Millisecond)
	fail(t, sim, map[string]any{
		"method": "history.list", "status": 429, "reason": "userRateLimitExceeded",
		"message": "User-rate limit exceeded.  Retry after " + until.UTC().Format("2006-01-02T15:04:05.000Z"),
	})
	s := waitFor(t, config, func(s worker.AccountStatus) bool { return s.Reason != "" })
	want := "paused by Gmail until " + until.Local().Format("15:04:05")
	if s.Reason != want || !isLive(s) || s.DeadLetters != 0 {
		t.Errorf("%+v, want the reason %q and nothing else changed", s, want)
	}
	if table := mustCommand(t, "status", "-c", config); !strings.Contains(table, want) {
		t.Errorf("no %q in the table:\n%s", want, table)
	}
	asked := simStats(t, sim).Calls["history.list"]
	mustCommand(t, "quota", "reset", "-c", config, "--yes", "--account", s.ID)
	waitFor(t, config, func(s worker.AccountStatus) bool { return s.Reason == "" })
	if now := simStats(t, sim).Calls["history.list"]; now > asked+1 {
		t.Errorf("history.list was called %d times in the pause", now-asked)
	}
}
