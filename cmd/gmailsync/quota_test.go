package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
	"github.com/gmailsync/gmailsync/worker"
)

// run executes a command in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := run(t, args...)
	if code != exitDone {
		t.Fatalf("gmailsync %v: exit %d: %s", args, code, errs)
	}
	return out
}

func TestQuotaPlanComparesWithTheDefault(t *testing.T) {
	var got map[string]planned
	if err := json.Unmarshal([]byte(mustRun(t, "quota", "plan", "--limit", "6000", "--burst", "600", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	large, standard := got["plan"], got["default"]
	if large.Limit != 6000 || large.Burst != 600 || large.Refill != 5382 || large.Use > 0.9 || large.Fixed+large.Sliding > 0 || large.Bucket == 0 {
		t.Errorf("a burst of 600: %+v; want 90 %% of the limit, and only the provider's bucket refuses", large)
	}
	if standard.Burst != 100 || standard.Use < 0.97 || standard.Fixed+standard.Sliding+standard.Bucket > 0 {
		t.Errorf("the default: %+v; want at least 97 %% and no refusal", standard)
	}
	window := got["window"]
	if window.Limit != 6000 || window.Burst != 6000 || window.Use < 0.98 || window.Fixed+window.Sliding > 0 || window.Bucket < 0.5 || window.Threads < 147 {
		t.Errorf("a sliding window: %+v; want the whole limit as burst, 98 %% of it, and that only the provider's bucket refuses", window)
	}
	table := mustRun(t, "quota", "plan", "--limit", "15000", "--burst", "250", "--prices", "legacy", "--threads", "100000")
	for _, want := range []string{"refill, units a minute", "14700", "14850", "100000 threads take", "1h8m", "refused by a bucket of 1500", "SLIDING WINDOW", "99.0 %", "1m0.7s"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not have %q:\n%s", want, table)
		}
	}
}

// What Gmail refused is shown, for the account and for the project, and a reset ends it without giving anything.
func TestQuotaShowAndReset(t *testing.T) {
	url := "redis://" + quotatest.StartRedis(t)
	sim := startSim(t, "--accounts", "2", "--messages", "5")
	config := writeConfig(t, sim, "redis: {url: '"+url+"', timeout: 5s}\n")
	for _, account := range sim.Accounts {
		addAccount(t, config, account)
	}
	first := sim.Accounts[0]
	options, err := gmailquota.RedisOptions(url, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(scope gmailquota.Scope) {
		t.Helper()
		if err := guard.Penalize(t.Context(), first.Sub, gmailquota.Refusal{Scope: scope, Until: time.Now().Add(15 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	refuse(gmailquota.ScopeUser)
	both := shown(t, "-c", config)
	if len(both.Accounts) != 2 || both.Project.Limit != 1_200_000 || !both.Project.PausedUntil.IsZero() {
		t.Fatalf("two accounts and an open project: %+v", both)
	}
	one := shown(t, "-c", config, "--account", first.Address)
	if len(one.Accounts) != 1 || one.Accounts[0].ID != first.Sub {
		t.Fatalf("--account %s shows %+v", first.Address, one)
	}
	if day := one.Project.Day; day.Used < 2 || day.Limit != 80_000_000 || day.TurnsIn <= 0 || day.TurnsIn > 86_400 {
		t.Errorf("the day: %+v", day)
	}
	q := one.Accounts[0]
	if left := time.Until(q.PausedUntil); left < 10*time.Minute || q.Wait < 600 || q.Limit != 6000 || q.Burst != 100 || q.InFlightCap != 10 {
		t.Errorf("a paused account: %+v", q)
	}
	table := mustRun(t, "quota", "show", "-c", config)
	for _, want := range []string{"project gmailsync", first.Sub, first.Address, "6000/min", "5880 of 5880/min", "until ", "of 10", "today: ", "of the 80000000"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not have %q:\n%s", want, table)
		}
	}

	if out := mustRun(t, "quota", "reset", "-c", config, "--account", first.Address, "--yes"); !strings.Contains(out, "account "+first.Sub+": the pause until") {
		t.Errorf("the reset said %q", out)
	}
	if q := shown(t, "-c", config, "--account", first.Sub).Accounts[0]; !q.PausedUntil.IsZero() || q.Wait > 30 || q.Units > 100 {
		t.Errorf("after the reset: %+v; want no pause, and a bucket that is open within the longest reservation", q)
	}
	refuse(gmailquota.ScopeProject)
	if out := mustRun(t, "quota", "reset", "-c", config, "--yes"); !strings.Contains(out, "project gmailsync: the pause until") {
		t.Errorf("the reset said %q", out)
	}
	if out := mustRun(t, "quota", "reset", "-c", config, "--yes"); !strings.Contains(out, "not paused") {
		t.Errorf("the second reset said %q", out)
	}
	for _, args := range [][]string{
		{"show", "-c", config, "--account", "nobody"},
		{"reset", "-c", config, "--yes", "--account", "nobody"},
	} {
		if out, errs, code := run(t, append([]string{"quota"}, args...)...); code != exitFailed || out != "" || !strings.Contains(errs, "--account") {
			t.Errorf("quota %v: exit %d, %q, %q", args, code, out, errs)
		}
	}
}

func shown(t *testing.T, args ...string) worker.QuotaReport {
	t.Helper()
	var r worker.QuotaReport
	if err := json.Unmarshal([]byte(mustRun(t, append([]string{"quota", "show", "--json"}, args...)...)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Buckets that are nowhere are an error that says why, not a row of zeros.
func TestQuotaWithoutBucketsFails(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "5")
	config := writeConfig(t, sim, "")
	addAccount(t, config, sim.Accounts[0])
	for _, args := range [][]string{{"show"}, {"reset", "--yes"}} {
		args = append(append([]string{"quota"}, args...), "-c", config)
		for name, c := range map[string]struct{ key, value, want string }{
			"no worker":   {"GMAILSYNC_REDIS_URL", "embedded", "no worker runs"},
			"guard off":   {"GMAILSYNC_GUARD_ENABLED", "false", "guard.enabled"},
			"no redis":    {"GMAILSYNC_REDIS_URL", "redis://127.0.0.1:1", "connection refused"},
			"store wrong": {"GMAILSYNC_STORE_PATH", "/nowhere/x.db", "store.path"},
		} {
			t.Run(name+" "+args[1], func(t *testing.T) {
				t.Setenv(c.key, c.value)
				out, errs, code := run(t, args...)
				want := exitFailed
				if name == "store wrong" {
					want = exitUsage
				}
				if code != want || out != "" || !strings.Contains(errs, c.want) {
					t.Errorf("exit %d, %q, %q; want exit %d and %q", code, out, errs, want, c.want)
				}
			})
		}
	}
}

// Beside a worker its embedded buckets are shown.
func TestQuotaShowsTheWorkersEmbeddedBuckets(t *testing.T) {
	sim := startSim(t, "--accounts", "1", "--messages", "5")
	config := writeConfig(t, sim, "")
	addAccount(t, config, sim.Accounts[0])
	start(t, "run", "-c", config)
	waitFor(t, config, isLive)
	r := shown(t, "-c", config)
	if len(r.Accounts) != 1 || r.Accounts[0].Burst != 100 || r.Accounts[0].Refill != 5880 || r.Project.Name != "gmailsync" {
		t.Errorf("%+v", r)
	}
	mustRun(t, "quota", "reset", "-c", config, "--account", r.Accounts[0].ID, "--yes")
}
