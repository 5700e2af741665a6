package gmailsim

import (
	"fmt"
	"sync"
	"time"
)

// The ways in which a provider may measure "units a minute"; Google does not say which is its own.
const (
	meterFixed   = "fixed"   // calendar minutes
	meterSliding = "sliding" // the last 60 seconds
	meterBucket  = "bucket"  // a token bucket, see bucket
)

// meter decides which calls are within the limits, and records what was asked of it. It never sees why a client calls.
type meter struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	project scope
	users   map[string]*scope
	stats   Stats
}

// scope is one user's use, or the project's.
type scope struct {
	asked    window  // every call that arrived, refused ones too
	limiter  limiter // nil: unlimited
	inFlight int
	maxAsked int64 // most units asked for in any 60 s
	units    int64 // admitted
	refused  int64
	first    time.Time
	last     time.Time
}

// limiter answers whether so many units fit at now, and takes them if asked to.
type limiter interface {
	fits(now time.Time, units int64) bool
	take(now time.Time, units int64)
}

func newMeter(cfg Config, now func() time.Time) (*meter, error) {
	switch cfg.Metering {
	case meterFixed, meterSliding, meterBucket:
	default:
		return nil, fmt.Errorf("gmailsim: metering %q is unknown: want fixed, sliding or bucket", cfg.Metering)
	}
	m := &meter{cfg: cfg, now: now, users: map[string]*scope{}}
	m.project.limiter = newLimiter(cfg.Metering, cfg.ProjectLimit, now())
	m.stats = Stats{Calls: map[string]int64{}, RefusedBy: map[string]int64{}}
	return m, nil
}

func newLimiter(mode string, limit int64, now time.Time) limiter {
	switch {
	case limit == 0:
		return nil
	case mode == meterFixed:
		return &fixedMinute{limit: limit}
	case mode == meterSliding:
		return &slidingMinute{limit: limit}
	}
	return newBucket(limit, now)
}

func (m *meter) user(name string) *scope {
	u := m.users[name]
	if u == nil {
		u = &scope{limiter: newLimiter(m.cfg.Metering, m.cfg.UserLimit, m.now())}
		m.users[name] = u
	}
	return u
}

// admit counts a call in; the caller must call done for each admitted one. refusedBy is "user", "project" or
// "in-flight", and empty for an admitted call.
func (m *meter) admit(account, method string, units int64) (refusedBy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	u := m.user(account)
	u.ask(now, units)
	m.project.ask(now, units)
	m.stats.Calls[method]++
	m.stats.MaxUserInFlight = max(m.stats.MaxUserInFlight, u.inFlight+1)

	switch {
	case m.cfg.InFlight > 0 && u.inFlight >= m.cfg.InFlight:
		refusedBy = "in-flight"
	case u.limiter != nil && !u.limiter.fits(now, units):
		refusedBy = "user"
	case m.project.limiter != nil && !m.project.limiter.fits(now, units):
		refusedBy = "project"
	}
	if refusedBy != "" {
		m.stats.Refused++
		m.stats.RefusedBy[refusedBy]++
		u.refused++
		return refusedBy
	}
	m.stats.Units += units
	for _, s := range []*scope{u, &m.project} {
		s.units += units
		s.inFlight++
		if s.limiter != nil {
			s.limiter.take(now, units)
		}
	}
	return ""
}

// done ends an admitted call.
func (m *meter) done(account string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.user(account).inFlight--
	m.project.inFlight--
}

// faulted counts a call that an injected fault answered.
func (m *meter) faulted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Faults++
}

func (s *scope) ask(now time.Time, units int64) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	s.asked.add(now, units)
	s.maxAsked = max(s.maxAsked, s.asked.sum)
}

// window holds the events of the last 60 seconds.
type window struct {
	events []event
	head   int
	sum    int64
}

type event struct {
	at    time.Time
	units int64
}

func (w *window) add(now time.Time, units int64) {
	w.drop(now)
	w.events = append(w.events, event{now, units})
	w.sum += units
}

// drop forgets what is 60 s old or older.
func (w *window) drop(now time.Time) {
	for w.head < len(w.events) && now.Sub(w.events[w.head].at) >= time.Minute {
		w.sum -= w.events[w.head].units
		w.head++
	}
	if w.head > len(w.events)/2 {
		w.events = append(w.events[:0], w.events[w.head:]...)
		w.head = 0
	}
}

type fixedMinute struct {
	limit, used int64
	minute      time.Time
}

func (f *fixedMinute) fits(now time.Time, units int64) bool {
	if minute := now.Truncate(time.Minute); !minute.Equal(f.minute) {
		f.minute, f.used = minute, 0
	}
	return f.used+units <= f.limit
}

func (f *fixedMinute) take(_ time.Time, units int64) { f.used += units }

type slidingMinute struct {
	limit int64
	used  window
}

func (s *slidingMinute) fits(now time.Time, units int64) bool {
	s.used.drop(now)
	return s.used.sum+units <= s.limit
}

func (s *slidingMinute) take(now time.Time, units int64) { s.used.add(now, units) }

// bucket holds a tenth of the limit, at least 200 units, and gets a sixtieth of the limit each full second. For bursts
// it is stricter than a minute; over a minute it lets through up to 1.1 times the limit.
type bucket struct {
	capacity, perSecond, tokens float64
	filled                      time.Time
}

// minBucket is room for two of the dearest calls (watch, send: 100 units).
const minBucket = 200

func newBucket(limit int64, now time.Time) *bucket {
	capacity := max(float64(limit)/10, minBucket)
	return &bucket{capacity: capacity, perSecond: float64(limit) / 60, tokens: capacity, filled: now}
}

func (b *bucket) fits(now time.Time, units int64) bool {
	if full := now.Sub(b.filled).Truncate(time.Second); full > 0 {
		b.tokens = min(b.capacity, b.tokens+full.Seconds()*b.perSecond)
		b.filled = b.filled.Add(full)
	}
	return b.tokens >= float64(units)
}

func (b *bucket) take(_ time.Time, units int64) { b.tokens -= float64(units) }
