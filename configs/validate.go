package configs

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Resolve returns a copy in which the settings that follow from others are filled in: store.keyFile and
// guard.projectBurst. Load has done it already.
func (c Config) Resolve() Config {
	c.Guard.Prices = maps.Clone(c.Guard.Prices)
	c.Scope.LabelsIn, c.Scope.LabelsOut = slices.Clone(c.Scope.LabelsIn), slices.Clone(c.Scope.LabelsOut)
	if c.Store.KeyFile == "" {
		c.Store.KeyFile = c.Store.Path + ".key"
	}
	if c.Guard.ProjectBurst == 0 {
		c.Guard.ProjectBurst = max(c.Guard.ProjectLimit/projectBurstShare, c.Guard.userBucket(1).capacity)
	}
	return c
}

// Validate returns an *Error for the first setting that is not allowed, nil if all are.
func (c Config) Validate() error {
	c = c.Resolve()
	v := &validator{}
	c.checkServices(v)
	c.checkScope(v)
	c.checkGuard(v)
	c.checkConsumers(v)
	if v.err != nil {
		return v.err
	}
	return nil
}

const (
	maxSlots      = 100 // jobs under way in one process for one consumer
	maxParkWait   = 30 * time.Minute
	maxTimeout    = 5 * time.Second
	maxSweepAfter = 24 * time.Hour
)

var (
	bucketName  = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,100}$`)
	projectName = regexp.MustCompile(`^[A-Za-z0-9.:-]{1,100}$`)
	// namePrefix leaves room for what is put after it: Pub/Sub's names have at most 255 characters.
	namePrefix  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~+%-]{0,199}$`)
	topicName   = regexp.MustCompile(`^projects/[^/\s]+/topics/[^/\s]+$`)
	accountName = regexp.MustCompile(`^[^@\s]+@[^@\s]+$`)
)

func (c Config) checkServices(v *validator) {
	v.httpURL("gmail.endpoint", c.Gmail.Endpoint)
	v.httpURL("gmail.tokenURL", c.Gmail.TokenURL)
	v.redisURL("redis.url", c.Redis.URL)
	v.duration("redis.timeout", c.Redis.Timeout, time.Millisecond, maxTimeout)
	if c.PubSub.Endpoint != "" && c.PubSub.Endpoint != Embedded {
		v.hostPort("pubsub.endpoint", c.PubSub.Endpoint, `embedded, the host:port of an emulator, or "" for Google's`)
	}
	v.matches("pubsub.project", c.PubSub.Project, projectName, "a Google Cloud project id")
	v.matches("pubsub.prefix", c.PubSub.Prefix, namePrefix, "a letter, then letters, digits and . _ ~ + % -, at most 200")
	if strings.HasPrefix(strings.ToLower(c.PubSub.Prefix), "goog") {
		v.fail("pubsub.prefix", c.PubSub.Prefix, "", `a name that does not begin with "goog", which Pub/Sub keeps for itself`)
	}
	if c.PubSub.Topic != "" {
		v.matches("pubsub.topic", c.PubSub.Topic, topicName, `projects/<project>/topics/<topic>, or "" for polling only`)
	}
	c.checkPush(v)
	if c.Store.Path == "" {
		v.fail("store.path", "", "", "the path of the SQLite file")
	}
	if c.Status.Listen != "" {
		v.hostPort("status.listen", c.Status.Listen, `host:port, or "" for none`)
	}
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "json", "console")
}

// checkPush refuses an endpoint that could not tell who posts to it: a token is only as good as the audience and the
// account that it is checked against.
func (c Config) checkPush(v *validator) {
	v.httpURL("push.certsURL", c.Push.CertsURL)
	if c.Push.Listen == "" {
		return
	}
	v.hostPort("push.listen", c.Push.Listen, `host:port, or "" for polling only`)
	const unchecked = "push.listen is set, and without it anybody could post notifications"
	if c.Push.Audience == "" {
		v.fail("push.audience", "", unchecked, "the audience that the push subscription was given")
	}
	if !accountName.MatchString(c.Push.ServiceAccount) {
		v.fail("push.serviceAccount", c.Push.ServiceAccount, unchecked, "the email address of the push subscription's service account")
	}
}

// checkScope refuses a scope that contradicts itself.
func (c Config) checkScope(v *validator) {
	s := c.Scope
	if s.Query != strings.TrimSpace(s.Query) || strings.ContainsFunc(s.Query, unicode.IsControl) {
		v.fail("scope.query", strconv.Quote(s.Query), "", "one line of Gmail's search, without space around it")
	}
	v.labels("scope.labelsIn", s.LabelsIn)
	v.labels("scope.labelsOut", s.LabelsOut)
	for _, name := range s.LabelsIn {
		out := slices.ContainsFunc(s.LabelsOut, func(o string) bool { return strings.EqualFold(o, name) })
		if out || name == "SPAM" && !s.Spam || name == "TRASH" && !s.Trash {
			v.fail("scope.labelsIn", name, "it is both in and out", "labels that scope.labelsOut, scope.spam and scope.trash do not leave out")
		}
	}
}

func (c Config) checkConsumers(v *validator) {
	n := c.Consumers
	v.number("consumers.initialSync", int64(n.InitialSync), 1, maxSlots)
	v.number("consumers.threadBatch", int64(n.ThreadBatch), 1, maxSlots)
	v.number("consumers.history", int64(n.History), 1, maxSlots)
	v.number("consumers.batchSize", int64(n.BatchSize), 1, 100)
	v.number("consumers.window", int64(n.Window), 1, 100)
	v.duration("consumers.pollInterval", n.PollInterval, 100*time.Millisecond, 24*time.Hour)
	v.duration("consumers.maxPark", n.MaxPark, 100*time.Millisecond, maxParkWait)
	v.number("consumers.maxParked", int64(n.MaxParked), 1, 100_000)
	v.duration("consumers.sweepAfter", n.SweepAfter, 100*time.Millisecond, maxSweepAfter)
	if n.SweepAfter <= n.MaxPark {
		v.fail("consumers.sweepAfter", n.SweepAfter.String(), "jobs that are only waiting would be published again", "more than consumers.maxPark, which is "+n.MaxPark.String())
	}
	v.number("consumers.maxAttempts", int64(n.MaxAttempts), 1, 1000)
}

func (v *validator) labels(key string, names []string) {
	if slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }) {
		v.fail(key, strconv.Quote(""), "", "names or ids of labels, none of them empty")
	}
}

// validator keeps the first setting that is not allowed.
type validator struct{ err *Error }

func (v *validator) fail(key, value, problem, allowed string) {
	if v.err == nil {
		v.err = &Error{Key: key, Value: shown(key, value), Problem: problem, Allowed: allowed}
	}
}

func (v *validator) number(key string, n, least, most int64) {
	if n < least || n > most {
		v.fail(key, strconv.FormatInt(n, 10), "", fmt.Sprintf("%d to %d", least, most))
	}
}

func (v *validator) duration(key string, d, least, most time.Duration) {
	if d < least || d > most {
		v.fail(key, d.String(), "", fmt.Sprintf("%s to %s", least, most))
	}
}

func (v *validator) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.fail(key, value, "", strings.Join(allowed, ", "))
	}
}

func (v *validator) matches(key, value string, form *regexp.Regexp, allowed string) {
	if !form.MatchString(value) {
		v.fail(key, value, "", allowed)
	}
}

func (v *validator) httpURL(key, value string) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !hasHost(u) {
		v.fail(key, value, "", "http://host[:port]/… or https://host[:port]/…")
	}
}

func (v *validator) redisURL(key, value string) {
	if value == Embedded {
		return
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || !hasHost(u) {
		v.fail(key, value, "", "embedded, redis://[user:password@]host[:port][/db], or rediss:// for TLS; with ?addr=host:port for each further node of a cluster, ?master_name= for Sentinel")
	}
}

func hasHost(u *url.URL) bool {
	return u.Hostname() != "" && (u.Port() == "" && !strings.HasSuffix(u.Host, ":") || isPort(u.Port()))
}

func (v *validator) hostPort(key, value, allowed string) {
	_, port, err := net.SplitHostPort(value)
	if err != nil || !isPort(cmp.Or(port, "none")) {
		v.fail(key, value, "", allowed)
	}
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
