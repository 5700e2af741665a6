package main

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gmailsync/gmailsync/worker"
)

// Exit code 1 while mirror and mailbox differ, 0 once the repair has left nothing, and the repair says what it did.
func TestVerifyTellsByItsExitCode(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "20", "--user-limit", "600000", "--latency", "0s")
	config := writeConfig(t, sim, "guard: {userLimit: 600000, userBurst: 10000}\n")
	run := start(t, "run", "-c", config)
	addAccount(t, config, sim.Accounts[0])
	waitFor(t, config, isLive)
	mustCommand(t, "verify", "-c", config, "--labels", "--deep")
	if err := run.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(config), "mirror.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "UPDATE messages SET body_text = 'damaged', label_ids = '[]'"); err != nil {
		t.Fatal(err)
	}

	if out, _, code := command(t, "verify", "-c", config); code != exitDone {
		t.Errorf("history ids alone: exit %d, %s", code, out)
	}
	out, _, code := command(t, "verify", "-c", config, "--deep=1000")
	if code != exitFailed || !strings.Contains(out, "content") {
		t.Errorf("damaged: exit %d, %s", code, out)
	}
	out, _, code = command(t, "verify", "-c", config, "--deep=1000", "--repair")
	if code != exitDone || !strings.Contains(out, "repaired") {
		t.Errorf("repair: exit %d, %s", code, out)
	}
	var results []worker.VerifyResult
	out = mustCommand(t, "verify", "-c", config, "--labels", "--deep=1000", "--json")
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Found() != 0 || results[0].Sampled != results[0].Threads {
		t.Errorf("after the repair: %+v", results)
	}
	requireEqualMirror(t, sim, config, sim.Accounts[0].Address)
}
