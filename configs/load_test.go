package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gmailsync.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEmptyFileMeansTheDefaults(t *testing.T) {
	want := Default().Resolve()
	for name, text := range map[string]string{
		"nothing": "", "comments": "# only this\n", "an empty section": "guard:\n  # userLimit: 5\n", "a document mark": "---\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := load(writeFile(t, text), nil)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
	if got, err := load("", nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("without a file: got %+v, %v", got, err)
	}
}

func TestFileThenEnvironment(t *testing.T) {
	path := writeFile(t, `
gmail:
  clientSecret: "from: file"
pubsub:
  endpoint: ""
guard:
  userLimit: 15_000
  priceList: legacy
  prices: {threads.get: 12}
  failOpen: false
consumers:
  pollInterval: 90s
`)
	got, err := load(path, []string{
		"GMAILSYNC_GMAIL_CLIENT_SECRET=a=b c", "GMAILSYNC_GUARD_USER_LIMIT=9000", "GMAILSYNC_GMAIL_TOKEN_URL=http://localhost:1/token",
		"GMAILSYNC_GUARD_PER_USER_CAPACITY_UNITS=200", "GMAILSYNC_MAIL=/no/setting", "PATH=/bin",
		// Kubernetes sets these for services named gmailsync, gmailsync-redis and gmailsync-push.
		"GMAILSYNC_SERVICE_HOST=10.0.0.1", "GMAILSYNC_REDIS_SERVICE_PORT=6379", "GMAILSYNC_REDIS_PORT=tcp://10.0.0.1:6379",
		"GMAILSYNC_PUSH_PORT_8080_TCP_ADDR=10.0.0.1", "GMAILSYNC_PUSH_SERVICE_PORT_HTTP=8080",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Gmail.ClientSecret = "a=b c"
	want.Gmail.TokenURL = "http://localhost:1/token"
	want.PubSub.Endpoint = ""
	want.Guard.UserLimit = 9000
	want.Guard.PriceList = "legacy"
	want.Guard.Prices = map[string]int64{"threads.get": 12}
	want.Guard.FailOpen = false
	want.Guard.PerUserCapacityUnits = 200
	want.Consumers.PollInterval = 90 * time.Second
	want.Guard.ProjectBurst = 20_000
	want.Store.KeyFile = "gmailsync.db.key"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestPricesFromTheEnvironment(t *testing.T) {
	got, err := load("", []string{"GMAILSYNC_GUARD_PRICES=threads.get=40, watch=90"})
	if err != nil || !reflect.DeepEqual(got.Guard.Prices, map[string]int64{"threads.get": 40, "watch": 90}) {
		t.Errorf("got %v, %v", got.Guard.Prices, err)
	}
}

func TestEverySettingCanBeSetFromTheEnvironment(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range allKeys {
		if seen[k.env()] {
			t.Errorf("%s is the variable of two settings", k.env())
		}
		seen[k.env()] = true
		c := Default()
		setText(k.field(&c), "1") // panics on a type it does not know
	}
	for _, want := range []string{
		"GMAILSYNC_GMAIL_CLIENT_ID", "GMAILSYNC_PUSH_CERTS_URL", "GMAILSYNC_GUARD_KEY_TTL", "GMAILSYNC_PUBSUB_TOPIC",
		"GMAILSYNC_GUARD_PER_USER_REFILL_UNITS_PER_MINUTE", "GMAILSYNC_CONSUMERS_MAX_PARKED",
	} {
		if !seen[want] {
			t.Errorf("no setting has the variable %s", want)
		}
	}
}

func TestResolveDoesNotShareThePrices(t *testing.T) {
	a := Default()
	a.Guard.Prices = map[string]int64{"watch": 90}
	b := a.Resolve()
	b.Guard.Prices["watch"] = 1
	if a.Guard.Prices["watch"] != 90 {
		t.Error("the copy's prices are the original's")
	}
}

// TestWrongFileNamesKeyValueAndWhatIsAllowed covers the form of the file; TestValidate covers the values.
func TestWrongFileNamesKeyValueAndWhatIsAllowed(t *testing.T) {
	for _, test := range []struct {
		name, text string
		key, value string
		line       string
		in         []string // parts of the message
	}{
		{"misspelled key", "guard:\n  userLimt: 5\n", "guard.userLimt", "5", ":2", []string{"did you mean guard.userLimit?", "perUserCapacityUnits"}},
		{"key of another section", "gmail:\n  userLimit: 5\n", "gmail.userLimit", "5", ":2", []string{"did you mean guard.userLimit?"}},
		{"key without its section", "failOpen: true\n", "failOpen", "true", ":1", []string{"did you mean guard.failOpen?", "consumers"}},
		{"unknown section", "pubsubs:\n  x: 1\n", "pubsubs", "a mapping", ":1", []string{"did you mean pubsub?"}},
		{"key like no other", "log:\n  zzzzzzzz: 1\n", "log.zzzzzzzz", "1", ":2", []string{"unknown key; allowed: in log: level, format"}},
		{"merge key", "<<: {guard: 1}\n", "<<", "a mapping", ":1", []string{"unknown key"}},
		{"other case", "guard:\n  failopen: true\n", "guard.failopen", "true", ":2", []string{"did you mean guard.failOpen?"}},
		{"text for a number", "guard:\n  userLimit: lots\n", "guard.userLimit", "lots", ":2", []string{"a whole number"}},
		{"fraction for a number", "guard:\n  userLimit: 1.5\n", "guard.userLimit", "1.5", ":2", []string{"a whole number"}},
		{"number beyond 64 bits", "guard:\n  userLimit: 99999999999999999999\n", "guard.userLimit", "99999999999999999999", ":2", []string{"a whole number"}},
		{"yes for true", "guard:\n  failOpen: yes\n", "guard.failOpen", "yes", ":2", []string{"true or false"}},
		{"number for a duration", "guard:\n  keyTTL: 120\n", "guard.keyTTL", "120", ":2", []string{"unit", "30s"}},
		{"list for a text", "redis:\n  url: [a, b]\n", "redis.url", "a list", ":2", []string{"plain value"}},
		{"nothing for a text", "redis:\n  url:\n", "redis.url", "nothing", ":2", []string{"plain value"}},
		{"alias", "redis:\n  url: &u embedded\n", "redis.url", "an anchor, alias or tag", ":2", []string{"plain value"}},
		{"text for a section", "redis: embedded\n", "redis", "embedded", ":1", []string{"url, timeout"}},
		{"price that is no number", "guard:\n  prices:\n    threads.get: forty\n", "guard.prices.threads.get", "forty", ":3", []string{"units"}},
		{"labels that are no list", "scope:\n  labelsIn: INBOX\n", "scope.labelsIn", "INBOX", ":2", []string{"a list, such as"}},
		{"label that is no name", "scope:\n  labelsIn:\n    - INBOX\n    - {a: 1}\n", "scope.labelsIn", "a mapping", ":4", []string{"plain values"}},
		{"label both in and out", "scope:\n  labelsIn: [Work]\n  labelsOut: [work]\n", "scope.labelsIn", "Work", ":2", []string{"do not leave out"}},
		{"spam in and out", "scope:\n  labelsIn: [SPAM]\n  spam: false\n", "scope.labelsIn", "SPAM", ":2", []string{"scope.spam"}},
		{"label without a name", "scope:\n  labelsOut: [\"\"]\n", "scope.labelsOut", "", ":2", []string{"names or ids"}},
		{"query with space around it", "scope:\n  query: \" in:inbox\"\n", "scope.query", "", ":2", []string{"one line"}},
		{"prices that are no mapping", "guard:\n  prices: 40\n", "guard.prices", "40", ":2", []string{"method names"}},
		{"price of 0", "guard:\n  prices:\n    threads.get: 0\n", "guard.prices.threads.get", "0", ":3", []string{"1 to"}},
		{"capacity by hand of 0", "guard:\n  perUserCapacityUnits: 0\n", "guard.perUserCapacityUnits", "0", ":2", []string{"more than 0"}},
		{"burst of 0", "guard:\n  userBurst: 0\n", "guard.userBurst", "0", ":2", []string{"100, the dearest price"}},
		{"key given twice", "redis:\n  url: embedded\n  url: embedded\n", "configuration file", "", ":3", []string{`"url" already defined`}},
		{"not YAML", "redis:\n  url: [\n", "configuration file", "", ":2", []string{"not YAML"}},
		{"tab", "redis:\n\turl: embedded\n", "configuration file", "", ":2", []string{"not YAML"}},
		{"a list", "- redis\n", "configuration file", "", "", []string{"sections", "gmail, redis"}},
		{"two documents", "redis:\n---\nredis:\n", "configuration file", "", "", []string{"one YAML document"}},
		{"not UTF-8", "redis: \xff\n", "configuration file", "", "", []string{"UTF-8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeFile(t, test.text)
			_, err := load(path, nil)
			value := wantError(t, err, test.key, append(test.in, path+test.line)...)
			if test.value != "" && value != test.value {
				t.Errorf("value %q, want %q", value, test.value)
			}
		})
	}
}

// wantError checks that err is an *Error of one line about key that says all parts, and returns the value it names.
func wantError(t *testing.T, err error, key string, parts ...string) (value string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *configs.Error for %s", err, key)
	}
	if e.Key != key || e.Allowed == "" || strings.ContainsAny(e.Error(), "\n\r") {
		t.Errorf("got %q, want one line about %s that says what is allowed", e.Error(), key)
	}
	for _, part := range parts {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q does not say %q", e.Error(), part)
		}
	}
	return e.Value
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := load(path, nil)
	wantError(t, err, "configuration file", path, "no such file")
	_, err = load(filepath.Dir(path), nil)
	wantError(t, err, "configuration file", "is a directory")
}

func TestWrongEnvironment(t *testing.T) {
	for _, test := range []struct{ name, line, key, in string }{
		{"misspelled", "GMAILSYNC_GUARD_USERLIMIT=5", "GMAILSYNC_GUARD_USERLIMIT", "did you mean GMAILSYNC_GUARD_USER_LIMIT?"},
		{"wrong form", "GMAILSYNC_GUARD_USER_LIMIT=many", "guard.userLimit", "environment GMAILSYNC_GUARD_USER_LIMIT: guard.userLimit = many"},
		{"empty number", "GMAILSYNC_GUARD_USER_LIMIT=", "guard.userLimit", `= "": allowed: a whole number`},
		{"value not allowed", "GMAILSYNC_LOG_LEVEL=loud", "log.level", "environment GMAILSYNC_LOG_LEVEL: log.level = loud: allowed: debug"},
		{"prices", "GMAILSYNC_GUARD_PRICES=watch", "guard.prices", "method=units"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load("", []string{test.line})
			wantError(t, err, test.key, test.in)
		})
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	for name, text := range map[string]string{
		"misspelled secret":      "gmail:\n  clientSecrt: hunter2\n",
		"secret elsewhere":       "clientSecret: hunter2\n",
		"redis password":         "redis:\n  url: http://user:hunter2@host\n",
		"redis password behind":  "redis:\n  url: http://host?password=hunter2&master_name=m\n",
		"unreadable redis URL":   "redis:\n  url: \"redis://user:hunter2@ho st:x\"\n",
		"redis password with @":  "redis:\n  url: \"redis://user:hun@hunter2@ho st\"\n",
		"secret beside a fault":  "gmail:\n  clientSecret: hunter2\n  endpoint: x\n",
		"not YAML near a secret": "gmail:\n  clientSecret: hunter2\n   x\n  - y: [\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(writeFile(t, text), nil)
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
	_, err := load("", []string{"GMAILSYNC_GMAIL_CLIENTSECRET=hunter2"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("environment: got %v", err)
	}
}

// FuzzLoad: no input makes Load panic, and every error is one line.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"guard:\n  prices: {a: 1}\n", "a: &x\n  b: *x\n", "? a\n: b\n", "guard: !!map {}\n", "%YAML 1.2\n---\n", "redis: |\n x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := reader{config: Default(), where: map[string]string{}}
		err := r.file("f.yaml", []byte(text))
		if err == nil {
			err = r.check("f.yaml")
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("more than one line: %q", err)
		}
	})
}

func TestScopeFromFileAndEnvironment(t *testing.T) {
	c, err := load(writeFile(t, "scope:\n  query: newer_than:1y\n  labelsIn: [INBOX, Work]\n  trash: false\n"), []string{"GMAILSYNC_SCOPE_LABELS_OUT=Private, CATEGORY_PROMOTIONS"})
	want := Scope{Query: "newer_than:1y", LabelsIn: []string{"INBOX", "Work"}, LabelsOut: []string{"Private", "CATEGORY_PROMOTIONS"}, Spam: true}
	if err != nil || !reflect.DeepEqual(c.Scope, want) {
		t.Errorf("got %+v, %v; want %+v", c.Scope, err, want)
	}
}
