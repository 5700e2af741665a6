package configs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDefaultIsValidAndWarnsOfNothing(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	if w := Default().Warnings(); w != nil {
		t.Errorf("warnings: %q", w)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		key    string   // of the error; empty: allowed
		in     []string // parts of the message
	}{
		{"endpoint without a scheme", func(c *Config) { c.Gmail.Endpoint = "localhost:8080" }, "gmail.endpoint", []string{"localhost:8080", "http://host"}},
		{"endpoint without a host", func(c *Config) { c.Gmail.Endpoint = "https:///gmail" }, "gmail.endpoint", nil},
		{"endpoint with a bad port", func(c *Config) { c.Gmail.Endpoint = "http://sim:80800/" }, "gmail.endpoint", nil},
		{"endpoint with an empty port", func(c *Config) { c.Gmail.Endpoint = "http://sim:/" }, "gmail.endpoint", nil},
		{"endpoint on IPv6", func(c *Config) { c.Gmail.Endpoint = "http://[::1]:8080/" }, "", nil},
		{"token URL", func(c *Config) { c.Gmail.TokenURL = "ftp://x/token" }, "gmail.tokenURL", nil},
		{"Redis over HTTP", func(c *Config) { c.Redis.URL = "http://localhost:6379" }, "redis.url", []string{"redis://", "rediss://"}},
		{"Redis without a scheme", func(c *Config) { c.Redis.URL = "localhost:6379" }, "redis.url", nil},
		{"empty Redis", func(c *Config) { c.Redis.URL = "" }, "redis.url", []string{`= ""`}},
		{"Redis with password and db", func(c *Config) { c.Redis.URL = "rediss://u:p@redis:6380/2" }, "", nil},
		{"Redis Cluster", func(c *Config) { c.Redis.URL = "redis://a:1?addr=b:2&addr=c:3" }, "", nil},
		{"Redis Sentinel", func(c *Config) { c.Redis.URL = "rediss://u:p@a:26379/1?master_name=m&addr=b:26379&password=p" }, "", nil},
		{"Redis timeout 0", func(c *Config) { c.Redis.Timeout = 0 }, "redis.timeout", []string{"1ms to 5s"}},
		{"Pub/Sub emulator", func(c *Config) { c.PubSub.Endpoint = "localhost:8085" }, "", nil},
		{"Pub/Sub at Google", func(c *Config) { c.PubSub.Endpoint = "" }, "", nil},
		{"Pub/Sub endpoint as URL", func(c *Config) { c.PubSub.Endpoint = "http://localhost:8085" }, "pubsub.endpoint", []string{"host:port"}},
		{"Pub/Sub project", func(c *Config) { c.PubSub.Project = "a/b" }, "pubsub.project", nil},
		{"Pub/Sub prefix", func(c *Config) { c.PubSub.Prefix = "1st" }, "pubsub.prefix", nil},
		{"Pub/Sub prefix of Google's", func(c *Config) { c.PubSub.Prefix = "google-mail" }, "pubsub.prefix", []string{"goog"}},
		{"topic by its short name", func(c *Config) { c.PubSub.Topic = "gmail" }, "pubsub.topic", []string{"projects/"}},
		// vercel/chat#797: an endpoint that checks nothing because nothing is configured
		{"push without audience", withPush(func(p *Push) { p.Audience = "" }), "push.audience", []string{"anybody could post"}},
		{"push without service account", withPush(func(p *Push) { p.ServiceAccount = "" }), "push.serviceAccount", []string{"anybody could post"}},
		{"push with a name for an account", withPush(func(p *Push) { p.ServiceAccount = "pusher" }), "push.serviceAccount", nil},
		{"push with both", withPush(func(*Push) {}), "", nil},
		{"push listener without a port", withPush(func(p *Push) { p.Listen = "localhost" }), "push.listen", []string{"host:port"}},
		{"push listener with a named port", withPush(func(p *Push) { p.Listen = ":http" }), "push.listen", nil},
		{"push keys", func(c *Config) { c.Push.CertsURL = "" }, "push.certsURL", nil},
		{"no store", func(c *Config) { c.Store.Path = "" }, "store.path", nil},
		{"status listener", func(c *Config) { c.Status.Listen = "9090" }, "status.listen", nil},
		{"log level", func(c *Config) { c.Log.Level = "loud" }, "log.level", []string{"debug, info, warn, error"}},
		{"log format", func(c *Config) { c.Log.Format = "xml" }, "log.format", nil},

		{"price list", func(c *Config) { c.Guard.PriceList = "2027" }, "guard.priceList", []string{"2026-05, legacy"}},
		{"bucket name with a brace", func(c *Config) { c.Guard.Project = "a{b}" }, "guard.project", nil},
		{"negative limit", func(c *Config) { c.Guard.UserLimit = -6000 }, "guard.userLimit", []string{"-6000", "102 to"}},
		{"limit of 0", func(c *Config) { c.Guard.ProjectLimit = 0 }, "guard.projectLimit", nil},
		{"limit beyond the arithmetic", func(c *Config) { c.Guard.ProjectLimit = 2_000_000_000 }, "guard.projectLimit", nil},
		{"burst of 0", func(c *Config) { c.Guard.UserBurst = 0 }, "guard.userBurst", []string{"= 0", "100, the dearest price"}},
		{"burst below the dearest price", func(c *Config) { c.Guard.UserBurst = 99 }, "guard.userBurst", []string{"100, the dearest price"}},
		{"burst below a dearer price", func(c *Config) { c.Guard.Prices = map[string]int64{"watch": 150} }, "guard.userBurst", []string{"150, the dearest price"}},
		{"burst that is the whole limit", func(c *Config) { c.Guard.UserBurst = 6000 }, "guard.userBurst", []string{"to 5998", "guard.userLimit"}},
		{"project burst", func(c *Config) { c.Guard.ProjectBurst = 50 }, "guard.projectBurst", []string{"100, what one user may have at once"}},
		{"project burst below the user's", func(c *Config) { c.Guard.ProjectBurst, c.Guard.PerUserCapacityUnits = 150, 200 }, "guard.projectBurst", []string{"200, what one user may have at once"}},
		{"smallest limit with the largest jitter", func(c *Config) { c.Guard.UserLimit, c.Guard.Jitter, c.Guard.KeyTTL = 102, 10*time.Second, 3*time.Hour }, "", nil},
		{"more workers than the limit has bursts", withWorkers(59), "guard.workers", []string{"share"}},
		{"as many workers as the limit has bursts", withWorkers(58), "", nil},
		{"small project limit", func(c *Config) { c.Guard.ProjectLimit = 1000 }, "", nil},
		{"negative capacity by hand", func(c *Config) { c.Guard.PerUserCapacityUnits = -1 }, "guard.perUserCapacityUnits", []string{"100 to 5998"}},
		{"small capacity by hand", func(c *Config) { c.Guard.PerUserCapacityUnits = 40 }, "guard.perUserCapacityUnits", nil},
		{"negative refill by hand", func(c *Config) { c.Guard.PerUserRefillUnitsPerMinute = -1 }, "guard.perUserRefillUnitsPerMinute", nil},
		{"both by hand above the limit", func(c *Config) { c.Guard.PerUserCapacityUnits, c.Guard.PerUserRefillUnitsPerMinute = 6000, 6000 }, "", nil},
		{"negative jitter", func(c *Config) { c.Guard.Jitter = -1 }, "guard.jitter", nil},
		{"nothing in flight", func(c *Config) { c.Guard.InFlight = 0 }, "guard.inFlight", []string{"1 to 100"}},
		{"no workers", func(c *Config) { c.Guard.Workers = 0 }, "guard.workers", nil},
		{"two workers with a Redis each", func(c *Config) { c.Guard.Workers = 2 }, "redis.url", []string{"buckets of its own"}},
		{"no wait at all", func(c *Config) { c.Guard.MaxWait = 0 }, "guard.maxWait", []string{"30s"}},
		// cristipufu/aspnetcore-redis-rate-limiting#46: a bucket that expires before it is full
		{"shares of more than there is", func(c *Config) { c.Guard.ShareBackfill = 41 }, "guard.shareBackfill", []string{"41", "101 %", "1 to 40"}},
		{"no share", func(c *Config) { c.Guard.ShareMaintenance = 0 }, "guard.shareMaintenance", []string{"0", "1 to 100"}},
		{"negative day", func(c *Config) { c.Guard.DailyLimit = -1 }, "guard.dailyLimit", []string{"-1"}},
		{"keyTTL of the reservation alone", func(c *Config) { c.Guard.KeyTTL = 31 * time.Second }, "guard.keyTTL", []string{"31s", "30s", "1.02s", "100 units at 5880", "more than 31.02s"}},
		{"keyTTL just long enough", func(c *Config) { c.Guard.KeyTTL = 31100 * time.Millisecond }, "", nil},
		{"keyTTL too short for a slow refill", func(c *Config) { c.Guard.PerUserRefillUnitsPerMinute = 50 }, "guard.keyTTL", []string{"2m0s", "100 units at 50", "more than 2m30s"}},
		{"keyTTL too short for the project", func(c *Config) { c.Guard.ProjectLimit, c.Guard.ProjectBurst = 6000, 4000 }, "guard.keyTTL", []string{"the project's bucket", "4000 units at 1979"}},
		{"keyTTL of 0", func(c *Config) { c.Guard.KeyTTL = 0 }, "guard.keyTTL", []string{"0s"}},

		{"no slots", func(c *Config) { c.Consumers.History = 0 }, "consumers.history", []string{"1 to 100"}},
		{"too many slots", func(c *Config) { c.Consumers.ThreadBatch = 101 }, "consumers.threadBatch", nil},
		{"negative slots", func(c *Config) { c.Consumers.InitialSync = -1 }, "consumers.initialSync", nil},
		{"batch size", func(c *Config) { c.Consumers.BatchSize = 101 }, "consumers.batchSize", nil},
		{"window", func(c *Config) { c.Consumers.Window = 0 }, "consumers.window", nil},
		{"poll interval", func(c *Config) { c.Consumers.PollInterval = 0 }, "consumers.pollInterval", nil},
		{"parking for ever", func(c *Config) { c.Consumers.MaxPark = time.Hour }, "consumers.maxPark", []string{"30m"}},
		{"no place to park", func(c *Config) { c.Consumers.MaxParked = 0 }, "consumers.maxParked", nil},
		{"sweep before parking ends", func(c *Config) { c.Consumers.SweepAfter = time.Minute }, "consumers.sweepAfter", []string{"1m0s", "more than consumers.maxPark"}},
		{"no attempts", func(c *Config) { c.Consumers.MaxAttempts = 0 }, "consumers.maxAttempts", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			test.change(&c)
			err := c.Validate()
			if test.key == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			wantError(t, err, test.key, test.in...)
		})
	}
}

func withWorkers(n int) func(*Config) {
	return func(c *Config) { c.Guard.Workers, c.Redis.URL = n, "redis://redis:6379" }
}

func withPush(change func(*Push)) func(*Config) {
	return func(c *Config) {
		c.Push.Listen, c.Push.Audience, c.Push.ServiceAccount = ":8080", "https://sync.example.com/push", "push@p.iam.gserviceaccount.com"
		change(&c.Push)
	}
}

func TestErrorOfADerivedContradictionNamesTheFile(t *testing.T) {
	path := writeFile(t, "guard:\n  perUserRefillUnitsPerMinute: 50\n")
	_, err := load(path, nil)
	wantError(t, err, "guard.keyTTL", path+" (by default)")
}

func TestDerivedSettings(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Guard)
		want   int64 // projectBurst
	}{
		{"a sixtieth of the limit", func(g *Guard) { g.ProjectLimit = 600_000 }, 10_000},
		{"never below the user's burst", func(g *Guard) { g.ProjectLimit = 3000; g.UserBurst = 200 }, 200},
		{"never below the user's capacity", func(g *Guard) { g.ProjectLimit = 3000; g.PerUserCapacityUnits = 300 }, 300},
		{"as written", func(g *Guard) { g.ProjectBurst = 500 }, 500},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			test.change(&c.Guard)
			if got := c.Resolve().Guard.ProjectBurst; got != test.want {
				t.Errorf("projectBurst %d, want %d", got, test.want)
			}
		})
	}
	c := Default()
	c.Store.KeyFile = "/etc/key"
	if got := c.Resolve().Store.KeyFile; got != "/etc/key" {
		t.Errorf("keyFile %q", got)
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		in     []string // parts of the one warning; none: no warning
	}{
		// AlaskanTuna/Rokabot#149: capacity and refill are each the limit, so that a minute can hold twice of it
		{"twice the limit", func(c *Config) { c.Guard.PerUserCapacityUnits, c.Guard.PerUserRefillUnitsPerMinute = 6000, 6000 },
			[]string{"capacity 6000 + refill 6000", "12020 units", "guard.userLimit 6000", "a refill of 0"}},
		{"the jitter's share too much", func(c *Config) { c.Guard.PerUserRefillUnitsPerMinute = 5900 },
			[]string{"capacity 100 + refill 5900", "6020 units", "a refill of 5880"}},
		{"by hand within the limit", func(c *Config) { c.Guard.PerUserCapacityUnits, c.Guard.PerUserRefillUnitsPerMinute = 600, 5380 }, nil},
		{"guard off", func(c *Config) { c.Guard.Enabled = false }, []string{"guard.enabled"}},
		{"open without a fallback", func(c *Config) { c.Guard.LocalFallback = false }, []string{"guard.localFallback"}},
		{"closed without a fallback", func(c *Config) { c.Guard.LocalFallback, c.Guard.FailOpen = false, false }, nil},
		{"push without a topic", withPush(func(*Push) {}), []string{"pubsub.topic"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			test.change(&c)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.Warnings(), "\n")
			if (got == "") != (test.in == nil) || strings.Contains(got, "\n") {
				t.Errorf("got %q", got)
			}
			for _, part := range test.in {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
		})
	}
}

// TestRefillKeepsEveryWindowWithinTheLimit: capacity + refill x (1 + J/60 s) <= limit, and not much below it.
func TestRefillKeepsEveryWindowWithinTheLimit(t *testing.T) {
	for _, limit := range []int64{101, 250, 6000, 15_000, 1_200_000, maxUnits} {
		for _, jitter := range []time.Duration{0, 200 * time.Millisecond, 10 * time.Second} {
			worst := 100 + float64(refillFor(limit, 100, jitter))*(1+jitter.Minutes())
			if worst > float64(limit) || worst < float64(limit)-2 {
				t.Errorf("limit %d, jitter %s: worst window %f", limit, jitter, worst)
			}
		}
	}
}

// fieldComments reads config.go: the comment of each setting, by its path.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			structs[spec.Name.Name] = spec.Type.(*ast.StructType)
		}
		return true
	})
	tag := regexp.MustCompile(`yaml:"(\w+)"`)
	out := map[string]string{}
	for _, section := range structs["Config"].Fields.List {
		for _, f := range structs[section.Type.(*ast.Ident).Name].Fields.List {
			path := tag.FindStringSubmatch(section.Tag.Value)[1] + "." + tag.FindStringSubmatch(f.Tag.Value)[1]
			out[path] = strings.TrimSpace(f.Comment.Text())
		}
	}
	return out
}

// TestCommentsTellTheDefault: the comments in config.go are the reference, so what they say of defaults must be so.
func TestCommentsTellTheDefault(t *testing.T) {
	comments := fieldComments(t)
	stated := regexp.MustCompile(`\bdefault ([^ ;,(]+)`)
	bracketed := regexp.MustCompile(`"?([\w-]+)"? \(default\)|\b(empty) \(default\)`)
	c := Default()
	for _, k := range allKeys {
		comment := comments[k.path()]
		if comment == "" {
			t.Errorf("%s has no comment", k.path())
			continue
		}
		var says string
		if m := stated.FindStringSubmatch(comment); m != nil {
			says = m[1]
		} else if m := bracketed.FindStringSubmatch(comment); m != nil {
			says = m[1]
		}
		zero := c
		field := k.field(&zero)
		if says == "" || says == "empty" {
			if !field.IsZero() {
				t.Errorf("%s: the comment does not tell the default %v", k.path(), field)
			}
			continue
		}
		if strings.HasPrefix(says, "<") {
			continue // follows from another setting
		}
		if ok := setThenEqual(c, k, says); !ok {
			t.Errorf("%s: the comment says default %s, it is %v", k.path(), strconv.Quote(says), field)
		}
	}
}

func setThenEqual(c Config, k key, text string) bool {
	changed := c
	_, ok := setText(k.field(&changed), text)
	return ok && len(differing(c, changed)) == 0
}
