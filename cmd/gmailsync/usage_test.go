package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongConfigurationEndsAtOnce: exit code 2 and one line that names the key, the value and what is allowed.
func TestWrongConfigurationEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string
	}{
		"unknown key":      {"guard: {userLimt: 5}", []string{"guard.userLimt", "userLimit"}},
		"capacity 0":       {"guard: {userBurst: 0}", []string{"guard.userBurst", "0", "100"}},
		"keyTTL too short": {"guard: {keyTTL: 2s}", []string{"guard.keyTTL", "2s"}},
		"bad URL":          {"redis: {url: 'htp://x'}", []string{"redis.url", "htp://x", "redis://"}},
		"wrong type":       {"consumers: {window: many}", []string{"consumers.window", "many"}},
		"no audience":      {"push: {listen: '127.0.0.1:0'}", []string{"push.audience"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(c.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			requireUsageError(t, []string{"run", "-c", path}, c.want)
		})
	}
	t.Run("missing file", func(t *testing.T) {
		requireUsageError(t, []string{"run", "-c", "/nowhere/c.yaml"}, []string{"/nowhere/c.yaml"})
	})
}

func TestWrongArgumentsEndAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":  {[]string{"synk"}, []string{"synk"}},
		"unknown flag":     {[]string{"demo", "--acounts", "2"}, []string{"--acounts"}},
		"no accounts":      {[]string{"demo", "--accounts", "0"}, []string{"--accounts", "0"}},
		"unknown metering": {[]string{"demo", "--metering", "guess"}, []string{"guess", "sliding"}},
		"burst too small":  {[]string{"demo", "--burst", "20"}, []string{"guard.userBurst", "20", "100"}},
		"account alone":    {[]string{"account"}, []string{"add", "list"}},
		"missing mail":     {[]string{"demo", "--mail", "/nowhere"}, []string{"--mail", "/nowhere"}},
		"missing token":    {[]string{"account", "add", "--address", "a@example.com", "--refresh-token-file", "/nowhere"}, []string{"/nowhere"}},
		"required flag":    {[]string{"export"}, []string{"account"}},
		"sim price list":   {[]string{"sim", "--prices", "2020"}, []string{"2020", "legacy"}},
		"sim accounts":     {[]string{"sim", "--accounts", "-1"}, []string{"--accounts", "-1"}},
		"report nowhere":   {[]string{"demo", "--report", "/nowhere/r.json"}, []string{"--report", "/nowhere"}},
		"no store":         {[]string{"status"}, []string{"store.path", "gmailsync.db", "-c"}},
		"quota alone":      {[]string{"quota"}, []string{"show", "reset", "plan"}},
		"plan's burst":     {[]string{"quota", "plan", "--burst", "20"}, []string{"--burst = 20", "at least 100"}},
		"plan's limit":     {[]string{"quota", "plan", "--limit", "5000000"}, []string{"--limit = 5000000", "3000000"}},
		"plan's jitter":    {[]string{"quota", "plan", "--jitter", "-1s"}, []string{"--jitter = -1s", "10s"}},
		"plan's prices":    {[]string{"quota", "plan", "--prices", "2020"}, []string{"--prices = 2020", "legacy"}},
		"plan's threads":   {[]string{"quota", "plan", "--threads", "-1"}, []string{"--threads = -1"}},
		"dlq alone":        {[]string{"dlq"}, []string{"list", "replay", "drop"}},
		"dlq, which":       {[]string{"dlq", "replay"}, []string{"dlq replay", "--account", "--all"}},
		"dlq, both":        {[]string{"dlq", "drop", "1", "--all"}, []string{"dlq drop", "--all"}},
		"dlq, no number":   {[]string{"dlq", "drop", "x"}, []string{`"x"`, "dlq list"}},
		"sim's address":    {[]string{"sim", "--listen", "bad"}, []string{"--listen bad", "host:port"}},
		"sim's push URL":   {[]string{"sim", "--push", "::bad"}, []string{"--push ::bad", "http://"}},
		"reset, unsure":    {[]string{"quota", "reset"}, []string{"quota reset", "--yes"}},
		"verify's sample":  {[]string{"verify", "--deep=0"}, []string{"--deep", "at least 1"}},
		"a sample apart":   {[]string{"verify", "--deep", "5"}, []string{`"5"`, "--deep=N"}},
		"stray argument":   {[]string{"status", "now"}, []string{"now"}},
	} {
		t.Run(name, func(t *testing.T) { requireUsageError(t, c.args, c.want) })
	}
}

func requireUsageError(t *testing.T, args, want []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), args, &stdout, &stderr)
	if code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
	if stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("want one line on stderr and nothing on stdout, got %q and %q", stderr.String(), stdout.String())
	}
	for _, w := range want {
		if !strings.Contains(stderr.String(), w) {
			t.Errorf("%q does not name %q", stderr.String(), w)
		}
	}
}
