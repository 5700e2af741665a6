package gmailquota

import (
	"fmt"
	"regexp"
	"time"
)

// Config is what a Guard needs to know. DefaultConfig has the defaults; the zero value is not usable. All processes that
// share the buckets of a Google project need the same limits and prices.
type Config struct {
	// Project names the buckets: one name for one Google project. Letters, digits and . _ : -
	Project string
	// PriceList is "2026-05" (default) or "legacy"; Prices overrides single methods.
	PriceList string
	Prices    map[string]int64
	// UserLimit and ProjectLimit are Gmail's limits in units a minute; defaults 6,000 and 1,200,000. The project's is kept
	// in every minute for calls that reserve no further ahead than Backfill's horizon. Where all users' calls wait for w
	// seconds longer, up to w/60 more units can arrive in the minute in which these waits shorten: bound them with
	// Request.MaxWait or Horizons, or leave room (w = 3 s: 5 %).
	UserLimit, ProjectLimit int64
	// UserBurst is how many units a user may use at once after a pause: at least the dearest price (100, the default).
	// What it takes is lost for sustained use, see the package comment. ProjectBurst: default 0 = 1/60 of ProjectLimit,
	// at least UserBurst.
	UserBurst, ProjectBurst int64
	// UserCapacity (units) and UserRefill (units a minute) set the user's bucket by hand instead of UserBurst and what
	// follows from UserLimit. Default 0: not set. See Warnings.
	UserCapacity, UserRefill int64
	// Jitter is the longest time between the admission of a call and its arrival at Gmail; default 200 ms.
	Jitter time.Duration
	// InFlight is how many calls of one user may be reserved or under way, all processes together; default 10. Gmail
	// refuses at a ceiling that it does not document, about 50.
	InFlight int
	// KeyTTL is how long Redis keeps an idle user's bucket; default 2 min, and longer where a pause, a lowered rate or a
	// place lasts longer. It must be longer than a bucket takes
	// to fill plus the longest horizon, or a bucket would refill by expiring. The project's bucket is kept for a day.
	KeyTTL time.Duration
	// FailOpen: without a decision of Redis calls go through (default); else they fail with an UnavailableError.
	FailOpen bool
	// LocalFallback: calls that FailOpen lets through pass buckets in this process, with its share of the limits
	// (default); else they pass unguarded. Workers is how many processes share the limits then; default 1. With more
	// than one a state that Redis lost starts a burst lower, for what a process cannot know of the others.
	LocalFallback bool
	Workers       int
	// Horizons is how far ahead a class may reserve, at most 30 s; defaults 30 s, and for Backfill 410 ms, which is the refill of one
	// thread of 40 units: with less, calls made one after the other would each be denied for what is missing. A class that
	// is not in the map has its default.
	Horizons map[Class]time.Duration
	// Shares is the part of the rate, in percent, that a class has whenever it asks for it: together at most 100, each at
	// least 1. A class below its share may reserve as far ahead as any. What a class does not ask for is everybody's.
	// Defaults: Realtime 50, Backfill 40, Maintenance 10; a class that is not in the map has its default.
	Shares map[Class]int
	// DailyLimit is how many units the project may use in a day, which turns at midnight Pacific standard time: then
	// Backfill is denied until the next one, and the other classes go on. Default 80,000,000, from where on Google charges;
	// 0 is none. What passes without Redis is not counted.
	DailyLimit int64
	// RedisTimeout is how long Redis may take to answer, and for how long a decision waits until it is asked for, as many
	// wait for one; what takes longer is decided without Redis. Default 50 ms.
	RedisTimeout time.Duration
}

// DefaultConfig returns the limits of a Google project made since 2026-05-01.
func DefaultConfig() Config {
	return Config{
		Project: "gmailsync", PriceList: Prices202605, UserLimit: 6000, ProjectLimit: 1_200_000, UserBurst: 100,
		Jitter: 200 * time.Millisecond, InFlight: 10, KeyTTL: 2 * time.Minute, FailOpen: true, LocalFallback: true,
		Workers: 1, DailyLimit: 80_000_000, RedisTimeout: 50 * time.Millisecond,
		Horizons: map[Class]time.Duration{
			Realtime: 30 * time.Second, Maintenance: 30 * time.Second, Backfill: 410 * time.Millisecond,
		},
		Shares: map[Class]int{Realtime: 50, Backfill: 40, Maintenance: 10},
	}
}

const (
	minuteUS = 60_000_000
	// maxHorizon bounds Horizons. It is no setting: a debt beyond it is taken for a clock that was set back, and all
	// processes must agree on that.
	maxHorizon = 30 * time.Second
	// maxUnits bounds limits and prices. With KeyTTL of at most a day it keeps every number of the script below 2^53.
	maxUnits      = 1_000_000_000
	maxDailyUnits = 1_000_000_000_000
	maxKeyTTL     = 24 * time.Hour
	classes       = 3
)

var projectName = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,200}$`)

// Validate says what is wrong with c, as a *ConfigError, or nil.
func (c Config) Validate() error {
	_, err := c.plan()
	return err
}

// Warnings lists what is allowed and unwise, with the arithmetic. It is for a valid Config.
func (c Config) Warnings() []string {
	p, err := c.plan()
	if err != nil {
		return nil
	}
	var out []string
	if sum := p.user.units + p.user.refill; sum > c.UserLimit {
		out = append(out, fmt.Sprintf("UserCapacity %d + UserRefill %d = %d units in a minute, above UserLimit %d: Gmail will refuse calls",
			p.user.units, p.user.refill, sum, c.UserLimit))
	}
	if sum := p.project.units + p.project.refill; sum > c.ProjectLimit {
		out = append(out, fmt.Sprintf("the project's burst %d + refill %d = %d units in a minute, above ProjectLimit %d: Gmail will refuse calls",
			p.project.units, p.project.refill, sum, c.ProjectLimit))
	}
	return out
}

// plan is a checked Config in the integers of the core.
type plan struct {
	prices        map[string]int64
	user, project bucket
	horizons      [classes]int64 // µs
	longest       int64          // that any horizon may be
	shares        [classes]int64 // percent
	inFlight      int64
	day           int64 // units
	keyTTL        int64 // µs
	userMargin    int64 // µs a user's key outlives what it remembers
	others        int64 // µs of a user's bucket that other processes may have charged since this one asked last
}

func (p plan) limits() limits {
	return limits{p.user.cap, p.project.cap, p.inFlight, p.longest, p.day}
}

// plan checks c and derives what the core needs.
func (c Config) plan() (plan, error) {
	p := plan{inFlight: int64(c.InFlight), day: c.DailyLimit, keyTTL: c.KeyTTL.Microseconds()}
	if err := c.checkRanges(); err != nil {
		return p, err
	}
	var err error
	if p.prices, err = priceTable(c.PriceList, c.Prices); err != nil {
		return p, err
	}
	p.horizons, p.shares = c.horizons(), c.shares()
	p.longest = maxHorizon.Microseconds()
	if p.user, p.project, err = c.buckets(1); err != nil {
		return p, err
	}
	if c.Workers > 1 {
		p.others = p.user.cap // a burst, a few of the dear calls: each process asks again after every call
	}
	if err := c.checkDearest(p); err != nil {
		return p, err
	}
	if c.LocalFallback {
		if _, _, err := c.buckets(int64(c.Workers)); err != nil {
			return p, err
		}
	}
	return p, c.checkKeyTTL(&p)
}

func (c Config) checkRanges() error {
	switch {
	case !projectName.MatchString(c.Project):
		return &ConfigError{"Project", fmt.Sprintf("%q", c.Project), "1 to 200 letters, digits and . _ : -"}
	case c.UserLimit < 1 || c.UserLimit > maxUnits:
		return &ConfigError{"UserLimit", fmt.Sprint(c.UserLimit), fmt.Sprintf("1 to %d units a minute", int64(maxUnits))}
	case c.ProjectLimit < 1 || c.ProjectLimit > maxUnits:
		return &ConfigError{"ProjectLimit", fmt.Sprint(c.ProjectLimit), fmt.Sprintf("1 to %d units a minute", int64(maxUnits))}
	case c.UserCapacity < 0 || c.UserCapacity > maxUnits:
		return &ConfigError{"UserCapacity", fmt.Sprint(c.UserCapacity), fmt.Sprintf("0 (not set) to %d units", int64(maxUnits))}
	case c.UserRefill < 0 || c.UserRefill > maxUnits:
		return &ConfigError{"UserRefill", fmt.Sprint(c.UserRefill), fmt.Sprintf("0 (not set) to %d units a minute", int64(maxUnits))}
	case c.ProjectBurst < 0:
		return &ConfigError{"ProjectBurst", fmt.Sprint(c.ProjectBurst), "0 (1/60 of ProjectLimit) or a number of units"}
	case c.DailyLimit < 0 || c.DailyLimit > maxDailyUnits:
		return &ConfigError{"DailyLimit", fmt.Sprint(c.DailyLimit), fmt.Sprintf("0 (not watched) to %d units a day", int64(maxDailyUnits))}
	case c.Jitter < 0 || c.Jitter > 10*time.Second:
		return &ConfigError{"Jitter", c.Jitter.String(), "0s to 10s"}
	case c.InFlight < 1 || c.InFlight > 1000:
		return &ConfigError{"InFlight", fmt.Sprint(c.InFlight), "1 to 1000 calls"}
	case c.KeyTTL <= 0 || c.KeyTTL > maxKeyTTL:
		return &ConfigError{"KeyTTL", c.KeyTTL.String(), "up to 24h"}
	case c.Workers < 1 || c.Workers > 10_000:
		return &ConfigError{"Workers", fmt.Sprint(c.Workers), "1 to 10000 processes"}
	case c.RedisTimeout <= 0 || c.RedisTimeout > time.Minute:
		return &ConfigError{"RedisTimeout", c.RedisTimeout.String(), "more than 0s, up to 1m"}
	}
	for class, h := range c.Horizons {
		if class >= classes || h < 0 || h > maxHorizon {
			return &ConfigError{fmt.Sprintf("Horizons[%v]", class), h.String(), "a known class, and 0s to " + maxHorizon.String()}
		}
	}
	var sum int64
	for class, share := range c.shares() {
		if sum += share; share < 1 || sum > 100 {
			return &ConfigError{fmt.Sprintf("Shares[%v]", Class(class)), fmt.Sprint(share), "1 to 100 %, and 100 % for all classes together"}
		}
	}
	return nil
}

func (c Config) shares() [classes]int64 {
	defaults := DefaultConfig().Shares
	var out [classes]int64
	for class := range Class(classes) {
		share, ok := c.Shares[class]
		if !ok {
			share = defaults[class]
		}
		out[class] = int64(share)
	}
	return out
}

func (c Config) horizons() [classes]int64 {
	defaults := DefaultConfig().Horizons
	var out [classes]int64
	for class := range Class(classes) {
		h, ok := c.Horizons[class]
		if !ok {
			h = defaults[class]
		}
		out[class] = h.Microseconds()
	}
	return out
}

// buckets derives both buckets for one of n processes that share the limits.
func (c Config) buckets(n int64) (user, project bucket, err error) {
	burst := c.UserBurst
	field := "UserBurst"
	if c.UserCapacity > 0 {
		burst, field = c.UserCapacity, "UserCapacity"
	}
	refill := c.UserRefill / n
	if c.UserRefill == 0 {
		refill = refillFor(c.UserLimit/n, burst, c.Jitter)
	}
	if burst < 1 || refill < 1 {
		return user, project, &ConfigError{field, fmt.Sprint(burst), fmt.Sprintf("1 to less than the limit of %d units a minute for one of %d workers", c.UserLimit/n, n)}
	}
	projectBurst := c.ProjectBurst / n
	if c.ProjectBurst == 0 {
		projectBurst = c.ProjectLimit / 60 / n
	}
	projectBurst = max(projectBurst, burst)
	if c.ProjectBurst > 0 && c.ProjectBurst < burst {
		return user, project, &ConfigError{"ProjectBurst", fmt.Sprint(c.ProjectBurst), fmt.Sprintf("at least the user's burst of %d units, or 0", burst)}
	}
	// A call that its user's bucket makes wait is charged to the project at once and arrives later: for the project's
	// bucket that is jitter too. Only Backfill's horizon is counted, 0.7 % of the limit; the 30 s of the other classes
	// would take a third of it. ProjectLimit says what follows.
	projectJitter := c.Jitter + time.Duration(c.horizons()[Backfill])*time.Microsecond
	projectRefill := refillFor(c.ProjectLimit/n, projectBurst, projectJitter)
	if projectRefill < 1 {
		return user, project, &ConfigError{"ProjectLimit", fmt.Sprint(c.ProjectLimit), fmt.Sprintf("more than the burst of %d units for each of %d workers", projectBurst, n)}
	}
	return newBucket(burst, refill), newBucket(projectBurst, projectRefill), nil
}

// refillFor is the largest refill, in units a minute, with which no 60 seconds pass the limit: burst + refill x
// (1 + jitter/60 s) <= limit.
func refillFor(limit, burst int64, jitter time.Duration) int64 {
	if limit <= burst {
		return 0
	}
	return (limit - burst) * minuteUS / (minuteUS + jitter.Microseconds())
}

func (c Config) checkDearest(p plan) error {
	dearest, price := "", int64(0)
	for m, u := range p.prices {
		if u > price || u == price && m < dearest {
			dearest, price = m, u
		}
	}
	if p.user.units >= price {
		return nil
	}
	field := "UserBurst"
	if c.UserCapacity > 0 {
		field = "UserCapacity"
	}
	return &ConfigError{field, fmt.Sprint(p.user.units), fmt.Sprintf("at least %d units, the price of %s: a dearer call than the bucket holds could never be made", price, dearest)}
}

func (c Config) checkKeyTTL(p *plan) error {
	longest := p.longest
	need := max(p.user.cap, p.project.cap) + longest
	if p.keyTTL <= need {
		us := time.Microsecond
		return &ConfigError{"KeyTTL", c.KeyTTL.String(), fmt.Sprintf("more than %v = %v in which an empty bucket fills + the longest reservation of %v: a shorter one lets a bucket refill by expiring",
			time.Duration(need)*us, time.Duration(need-longest)*us, time.Duration(longest)*us)}
	}
	p.userMargin = min(p.keyTTL-(p.user.cap+longest), minuteUS)
	return nil
}
