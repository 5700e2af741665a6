// Package configs is the configuration: one struct, its defaults, the file and environment it is read from, and what
// is allowed. It must not know any other package of this project, log anything or open any connection.
package configs

import "time"

// Embedded is the value of redis.url and pubsub.endpoint that starts the service inside the process.
const Embedded = "embedded"

// Config is the whole configuration of one worker. Load reads it; the zero value is not usable, Default is.
type Config struct {
	Gmail     Gmail     `yaml:"gmail"`
	Redis     Redis     `yaml:"redis"`
	PubSub    PubSub    `yaml:"pubsub"`
	Push      Push      `yaml:"push"`
	Store     Store     `yaml:"store"`
	Scope     Scope     `yaml:"scope"`
	Guard     Guard     `yaml:"guard"`
	Consumers Consumers `yaml:"consumers"`
	Status    Status    `yaml:"status"`
	Log       Log       `yaml:"log"`
}

// Gmail says where Gmail is and with which OAuth client it is called.
type Gmail struct {
	Endpoint     string `yaml:"endpoint"`     // base URL; default https://gmail.googleapis.com/
	TokenURL     string `yaml:"tokenURL"`     // where refresh tokens are exchanged; default https://oauth2.googleapis.com/token
	ClientID     string `yaml:"clientID"`     // OAuth client; needed once an account is added
	ClientSecret string `yaml:"clientSecret"` // better from GMAILSYNC_GMAIL_CLIENT_SECRET
}

// Redis holds the quota guard's buckets.
type Redis struct {
	URL     string        `yaml:"url"`     // redis://, rediss:// for TLS, a cluster's with &addr= or Sentinel's with ?master_name=; or "embedded" (default): in the process, for one worker only
	Timeout time.Duration `yaml:"timeout"` // for one decision; default 50ms
}

// PubSub carries the jobs.
type PubSub struct {
	Endpoint string `yaml:"endpoint"` // "embedded" (default): in the process; host:port of an emulator; or empty for Google's
	Project  string `yaml:"project"`  // Google Cloud project id of topics and subscriptions; default gmailsync
	Prefix   string `yaml:"prefix"`   // of topic and subscription names; two workers with separate stores need two; default gmailsync
	Topic    string `yaml:"topic"`    // the topic that Gmail's watch publishes to, projects/P/topics/T; empty: no watch, polling only
}

// Push is the endpoint that Pub/Sub posts Gmail's notifications to.
type Push struct {
	Listen         string `yaml:"listen"`         // host:port; empty: no endpoint, polling only
	Audience       string `yaml:"audience"`       // the aud that the push subscription was given; required with listen
	ServiceAccount string `yaml:"serviceAccount"` // the email that signs; required with listen
	CertsURL       string `yaml:"certsURL"`       // Google's keys; default https://www.googleapis.com/oauth2/v3/certs
}

// Store is the mirror.
type Store struct {
	Path    string `yaml:"path"`    // SQLite file; default gmailsync.db
	KeyFile string `yaml:"keyFile"` // the key that encrypts tokens; made (mode 0600) if missing; default <path>.key
}

// Scope is the part of each mailbox that is mirrored. A change of it is applied at the next start.
type Scope struct {
	Query     string   `yaml:"query"`     // Gmail's search, such as newer_than:1y; a resync removes what it no longer finds, new mail counts as found until then; empty: everything
	LabelsIn  []string `yaml:"labelsIn"`  // names or ids of labels, one of which a message must have; empty: any message
	LabelsOut []string `yaml:"labelsOut"` // names or ids of labels, none of which a message may have; empty: no rule
	Spam      bool     `yaml:"spam"`      // messages in spam too; default true
	Trash     bool     `yaml:"trash"`     // messages in the trash too; default true
}

// Guard is the quota guard. FailOpen is read again when the file changes; everything else needs a restart.
type Guard struct {
	Enabled                     bool             `yaml:"enabled"`                     // default true; false: no call is guarded and Redis is not asked
	Project                     string           `yaml:"project"`                     // names the buckets: one name for one Google project, shared by all its workers; default gmailsync
	PriceList                   string           `yaml:"priceList"`                   // "2026-05" (default) or "legacy"
	Prices                      map[string]int64 `yaml:"prices"`                      // overrides: method name to units
	UserLimit                   int64            `yaml:"userLimit"`                   // units a minute for one user; default 6000
	ProjectLimit                int64            `yaml:"projectLimit"`                // units a minute for the project; default 1200000
	UserBurst                   int64            `yaml:"userBurst"`                   // units at once for a user, at least the dearest price used (100); default 100
	ProjectBurst                int64            `yaml:"projectBurst"`                // units at once for the project; default: 1/60 of projectLimit, at least what one user may have at once
	PerUserCapacityUnits        int64            `yaml:"perUserCapacityUnits"`        // by hand: replaces userBurst; default 0, not set
	PerUserRefillUnitsPerMinute int64            `yaml:"perUserRefillUnitsPerMinute"` // by hand: replaces what follows from userLimit; default 0, not set
	Jitter                      time.Duration    `yaml:"jitter"`                      // between being admitted and arriving at Gmail; default 200ms
	InFlight                    int              `yaml:"inFlight"`                    // calls under way for one user, all workers together; default 10
	ShareRealtime               int              `yaml:"shareRealtime"`               // percent of the rate that changes get whenever they ask; default 50
	ShareBackfill               int              `yaml:"shareBackfill"`               // percent of the rate that imports get whenever they ask; default 40
	ShareMaintenance            int              `yaml:"shareMaintenance"`            // percent of the rate that watches and checks get whenever they ask; default 10
	DailyLimit                  int64            `yaml:"dailyLimit"`                  // units a day for the project, at which imports wait for the next one; 0: none; default 80000000
	KeyTTL                      time.Duration    `yaml:"keyTTL"`                      // of the buckets in Redis; default 2m
	FailOpen                    bool             `yaml:"failOpen"`                    // Redis away: true (default) lets calls through the local buckets, false denies them
	LocalFallback               bool             `yaml:"localFallback"`               // the local buckets; without them failOpen lets everything through; default true
	Workers                     int              `yaml:"workers"`                     // how many workers share the limits when Redis is away; default 1
	MaxWait                     time.Duration    `yaml:"maxWait"`                     // the longest a worker slot sleeps for a reserved admission; a longer wait goes back to the queue; default 3s
}

// Consumers sizes the three consumers and the lot where denied jobs wait.
type Consumers struct {
	InitialSync  int           `yaml:"initialSync"`  // worker slots of the initial sync; default 3
	ThreadBatch  int           `yaml:"threadBatch"`  // worker slots of the thread batches; default 5
	History      int           `yaml:"history"`      // worker slots of the history consumer; default 5
	BatchSize    int           `yaml:"batchSize"`    // threads in a batch, 1 to 100; default 25
	Window       int           `yaml:"window"`       // batches of one account under way; default 2
	PollInterval time.Duration `yaml:"pollInterval"` // history is asked when no push has come for that long; default 5m
	MaxPark      time.Duration `yaml:"maxPark"`      // the longest a job waits in the process; default 1m
	MaxParked    int           `yaml:"maxParked"`    // jobs waiting in the process for one consumer; default 1000
	SweepAfter   time.Duration `yaml:"sweepAfter"`   // open work that nobody finished is published again after this; more than maxPark; default 5m
	MaxAttempts  int           `yaml:"maxAttempts"`  // real failures of one thread or message before it becomes a dead letter; default 8
}

// Status is the HTTP listener for /healthz, /readyz, /metrics and /status.json.
type Status struct {
	Listen string `yaml:"listen"` // host:port; empty (default): none
}

// Log is written to stderr.
type Log struct {
	Level  string `yaml:"level"`  // debug, "info" (default), warn, error
	Format string `yaml:"format"` // json or "console" (default)
}

// Default returns the configuration that an empty file means.
func Default() Config {
	return Config{
		Gmail:  Gmail{Endpoint: "https://gmail.googleapis.com/", TokenURL: "https://oauth2.googleapis.com/token"},
		Redis:  Redis{URL: Embedded, Timeout: 50 * time.Millisecond},
		PubSub: PubSub{Endpoint: Embedded, Project: "gmailsync", Prefix: "gmailsync"},
		Push:   Push{CertsURL: "https://www.googleapis.com/oauth2/v3/certs"},
		Store:  Store{Path: "gmailsync.db"},
		Scope:  Scope{Spam: true, Trash: true},
		Guard: Guard{
			Enabled: true, Project: "gmailsync", PriceList: "2026-05", UserLimit: 6000, ProjectLimit: 1_200_000,
			UserBurst: 100, Jitter: 200 * time.Millisecond, InFlight: 10,
			ShareRealtime: 50, ShareBackfill: 40, ShareMaintenance: 10, DailyLimit: 80_000_000, KeyTTL: 2 * time.Minute,
			FailOpen: true, LocalFallback: true, Workers: 1, MaxWait: 3 * time.Second,
		},
		Consumers: Consumers{
			InitialSync: 3, ThreadBatch: 5, History: 5, BatchSize: 25, Window: 2, PollInterval: 5 * time.Minute,
			MaxPark: time.Minute, MaxParked: 1000, SweepAfter: 5 * time.Minute, MaxAttempts: 8,
		},
		Log: Log{Level: "info", Format: "console"},
	}
}
