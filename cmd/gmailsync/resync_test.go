package main

import (
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/worker"
)

// A resync beside a running worker asks for one page of the listing for 500 threads, 10 units each, and for the threads that
// differ, 40 units each: here one, a message of which was given up and forgotten.
func TestResyncBesideAWorkerCostsItsListingAndWhatDiffers(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "2200", "--user-limit", "1200000")
	config := writeConfig(t, sim, "redis: {timeout: 5s}\nguard: {userLimit: 1200000}\nconsumers: {maxAttempts: 1, pollInterval: 1s}\n")
	owner := &victim{sim: sim, address: sim.Accounts[0].Address}
	addAccount(t, config, sim.Accounts[0])
	start(t, "run", "-c", config)
	threads := waitFor(t, config, isLive).Run.Listed
	failFetches(t, sim)
	owner.deliver(t, "From: b@example.com\nSubject: new\n\nnew\n")
	waitFor(t, config, func(s worker.AccountStatus) bool { return s.DeadLetters == 1 })
	mustCommand(t, "dlq", "drop", "-c", config, "--all")
	heal(t, sim)

	pages := int64(threads/500 + 1)
	if pages < 2 {
		t.Fatalf("%d threads are no more than a page", threads)
	}
	for _, differing := range []int64{1, 0} {
		before := simStats(t, sim)
		if out := mustCommand(t, "account", "resync", "-c", config, "--account", owner.address); !strings.Contains(out, "resync started") {
			t.Errorf("resync said %q", out)
		}
		live := waitFor(t, config, func(s worker.AccountStatus) bool { return isLive(s) && owner.caughtUp(s) })
		after := simStats(t, sim)
		called := func(method string) int64 { return after.Calls[method] - before.Calls[method] }
		if called("threads.list") != pages || called("threads.get") != differing || called("messages.get") != 0 {
			t.Errorf("%d of %d threads differ: threads.list %d, threads.get %d, messages.get %d", differing, threads,
				called("threads.list"), called("threads.get"), called("messages.get"))
		}
		// Beyond that, the profile, the labels, and the polls meanwhile.
		if units := after.Units - before.Units; units != 10*pages+40*differing+called("getProfile")+called("labels.list")+2*called("history.list") {
			t.Errorf("%d of %d threads differ: %d units for %v, before %v", differing, threads, units, after.Calls, before.Calls)
		}
		if live.Run.Listed != threads+1 || live.Run.Stored != threads+1 {
			t.Errorf("the run: %+v, want %d threads", live.Run, threads+1)
		}
	}
	owner.waitForAll(t, config, isLive)
}
