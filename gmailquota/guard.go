package gmailquota

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Guard decides which Gmail calls may be made now. It holds no goroutine and no connection of its own: the caller closes
// the Redis client, after Close. All methods are safe for concurrent use, by any number of goroutines and, on one Redis,
// of processes.
//
// Acquire is for callers with other work to do: it answers at once. Wait is for callers that can sleep for a while.
// Either way the Grant must be released when the call has ended.
type Guard struct {
	rdb      redis.UniversalClient
	script   *redis.Script
	cfg      Config
	plan     plan
	now      func() time.Time
	start    time.Time
	observe  Observer
	failOpen atomic.Bool
	breaker  breaker
	combiner combiner
	memory   memory
	local    *local
	scouts   scouts
	releases releases
	counters counters

	projectKey string
	userPrefix string
	common     [6]any // the arguments that every operation begins with, after its name
}

// Option changes a Guard at its making.
type Option func(*Guard)

// WithObserver calls o with each event. It must not block.
func WithObserver(o Observer) Option { return func(g *Guard) { g.observe = o } }

// WithClock replaces the clock of what happens in this process: the local fallback and the circuit breaker, and the
// reading of stated times. The buckets in Redis go by Redis' clock.
func WithClock(now func() time.Time) Option { return func(g *Guard) { g.now = now } }

// Request is one call that wants to be made.
type Request struct {
	// Account is the stable key of the user whose quota is charged; required.
	Account string
	// Method is Gmail's name of the method, "threads.get". Its price is charged.
	Method string
	Class  Class
	// MaxWait bounds how far ahead the call may be reserved, within the class's horizon; 0: the horizon alone; negative:
	// now or not at all.
	MaxWait time.Duration
	// Calls is how many calls of the method go out at once, 0 meaning 1: they are charged and admitted together.
	Calls int
	// Units, if not 0, is charged instead of the method's price times Calls: for a batch of different methods.
	Units int64
	// Turn keeps the call's place in line for when it comes back after a denial; nil is the one in the context, see
	// WithTurn. A call without one has no place: those that wait on theirs go before it.
	Turn *Turn
}

// New makes a Guard on rdb, a client made with RedisOptions, and makes no connection yet. The error is a *ConfigError.
func New(rdb redis.UniversalClient, cfg Config, opts ...Option) (*Guard, error) {
	p, err := cfg.plan()
	if err != nil {
		return nil, err
	}
	g := &Guard{
		rdb: rdb, script: redis.NewScript(scriptText), cfg: cfg, plan: p, now: time.Now, observe: func(Event) {},
		projectKey: "gmailquota:{" + cfg.Project + "}:project",
		userPrefix: "gmailquota:{" + cfg.Project + "}:user:",
		common:     [6]any{p.user.cap, p.project.cap, p.inFlight, p.userMargin, p.longest, p.day},
	}
	for _, o := range opts {
		o(g)
	}
	g.failOpen.Store(cfg.FailOpen)
	g.start = g.now()
	g.breaker.now = g.now
	g.combiner.patience = cfg.RedisTimeout
	g.memory.caps = [2]int64{p.user.cap, p.project.cap}
	g.memory.reach = [2]int64{p.user.cap + p.longest, p.project.cap + p.longest}
	g.releases.now, g.releases.send = g.now, g.sendReleases
	// A failure is not reported: the next decision meets the same Redis, and what it was not told is tried again.
	g.releases.due = func() { _ = g.releases.flush(context.Background(), true) }
	if g.local, err = newLocal(cfg, p, &g.memory, g.micros); err != nil {
		return nil, err
	}
	return g, nil
}

// micros is the time for what this process remembers, µs: nobody sets it back, where the clock has a monotonic reading.
func (g *Guard) micros() int64 { return g.start.UnixMicro() + g.now().Sub(g.start).Microseconds() }

// userKey hides the account key's characters, not the key: use an id, not an address.
func (g *Guard) userKey(account string) string {
	return g.userPrefix + base64.RawURLEncoding.EncodeToString([]byte(account))
}

// Price returns the units of one call of method, or a *PriceError.
func (g *Guard) Price(method string) (int64, error) {
	if p, ok := g.plan.prices[method]; ok {
		return p, nil
	}
	return 0, unpriced(method)
}

// SetFailOpen changes Config.FailOpen from the next decision on.
func (g *Guard) SetFailOpen(open bool) { g.failOpen.Store(open) }

// Acquire decides once, without sleeping. A Grant may ask to wait before the call (Grant.Wait); its units are charged
// already. Errors: *DeniedError, *UnavailableError, *PriceError, ErrNoAccount, and that of an ended context.
func (g *Guard) Acquire(ctx context.Context, r Request) (*Grant, error) {
	return g.acquire(ctx, r, patienceUS)
}

// acquire is Acquire for a caller that has at most limit µs until the call is made.
func (g *Guard) acquire(ctx context.Context, r Request, limit int64) (*Grant, error) {
	if r.Turn == nil {
		r.Turn = turnFrom(ctx)
	}
	gr, err := g.newGrant(r, limit)
	if err != nil {
		return nil, err
	}
	if err := over(ctx); err != nil {
		return nil, err
	}
	start := g.now()
	key := scoutKey{r.Account, r.Class}
	if turn := r.Turn.before(start); turn > 0 {
		if wait := g.scouts.needless(key, start, turn); wait > 0 {
			return nil, &DeniedError{Wait: wait, Bucket: BucketUser, Method: r.Method}
		}
	}
	d, err := g.decideShared(ctx, gr)
	if err != nil {
		d, err = g.withoutRedis(ctx, gr, err)
	}
	if err != nil {
		return nil, err
	}
	if d.code != admitted {
		g.counters.denied.Add(1)
		e := &DeniedError{Wait: time.Duration(d.wait) * time.Microsecond, Bucket: bucketNames[d.code], Method: r.Method}
		e.ahead = time.Duration(d.user) * time.Microsecond
		if d.to > 0 {
			r.Turn.keep(r.Class, d.ticket, g.now().Add(e.Wait))
			e.Wait = g.scouts.quote(key, g.now(), e.Wait, time.Duration(d.taken)*time.Microsecond)
			r.Turn.askAt(g.now().Add(e.Wait + e.ahead/2))
		}
		g.observe(Event{Kind: Denied, Method: r.Method, Class: r.Class, Bucket: e.Bucket, Wait: e.Wait, Took: g.now().Sub(start)})
		return nil, e
	}
	gr.decision = d
	if d.to > 0 {
		r.Turn.keep(r.Class, d.ticket, g.now())
	}
	gr.wait = time.Duration(d.wait) * time.Microsecond
	if r.Turn != nil {
		g.scouts.admitted(key, g.now())
	}
	r.Turn.askAt(g.now().Add(gr.wait + time.Duration(gr.charge.user-gr.charge.near/2)*time.Microsecond))
	if d.signs&signDay != 0 {
		g.observe(Event{Kind: DayReached, Units: g.plan.day, Wait: nextDay(g.now()).Sub(g.now())})
	}
	g.counters.admitted.Add(1)
	g.counters.units.Add(gr.units)
	g.observe(Event{Kind: Admitted, Method: r.Method, Class: r.Class, Units: gr.units, Wait: gr.wait, Took: g.now().Sub(start)})
	return gr, nil
}

// Wait acquires and sleeps until the call may be made, asking again after each denial, for at most limit in all, and not
// beyond the deadline of ctx; what would take longer fails at once with the *DeniedError or *UnavailableError that says
// so. When ctx ends during the sleep the charge is refunded. The Grant that it returns has no wait left.
func (g *Guard) Wait(ctx context.Context, r Request, limit time.Duration) (*Grant, error) {
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	end := g.now().Add(limit)
	asked := r.MaxWait
	if r.Turn == nil {
		r.Turn = turnFrom(ctx)
	}
	if r.Turn == nil {
		r.Turn = new(Turn)
	}
	if err := sleep(ctx, min(r.Turn.early(g.now()), limit)); err != nil {
		return nil, err
	}
	for {
		left := end.Sub(g.now())
		if r.MaxWait = left; left <= 0 {
			r.MaxWait = -1
		}
		if asked != 0 {
			r.MaxWait = min(r.MaxWait, asked)
		}
		gr, err := g.acquire(ctx, r, left.Microseconds())
		if err == nil {
			return g.sleepGrant(ctx, gr)
		}
		wait, again := waitOf(err)
		if !again || wait+ahead(err) > left {
			return nil, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// ahead is what a denied call sleeps after the quoted wait: then it is reserved that far ahead.
func ahead(err error) time.Duration {
	var denied *DeniedError
	if !errors.As(err, &denied) {
		return 0
	}
	return denied.ahead
}

// sleepGrant sleeps a grant's wait; when ctx ends before, nothing will reach Gmail.
func (g *Guard) sleepGrant(ctx context.Context, gr *Grant) (*Grant, error) {
	if err := sleep(ctx, gr.wait); err != nil {
		gr.Refund(context.WithoutCancel(ctx))
		return nil, err
	}
	gr.wait = 0
	return gr, nil
}

func waitOf(err error) (time.Duration, bool) {
	var denied *DeniedError
	if errors.As(err, &denied) {
		return denied.Wait, true
	}
	var away *UnavailableError
	if errors.As(err, &away) {
		return away.Wait, true
	}
	return 0, false
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil // the call itself will see an ended context
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newGrant checks a request and prices it.
func (g *Guard) newGrant(r Request, limit int64) (*Grant, error) {
	if r.Account == "" {
		return nil, ErrNoAccount
	}
	if r.Class >= classes {
		return nil, fmt.Errorf("gmailquota: %s: class %d is unknown", r.Method, r.Class)
	}
	calls := int64(max(r.Calls, 1))
	units := r.Units
	if units == 0 {
		price, err := g.Price(r.Method)
		if err != nil {
			return nil, err
		}
		units = price * min(calls, maxBatched+1)
	}
	switch {
	case r.Calls < 0 || calls > min(g.plan.inFlight, maxBatched):
		return nil, &PriceError{r.Method, units, fmt.Sprintf("%d calls at once; allowed are 1 to the %d of Config.InFlight, and at most %d", r.Calls, g.plan.inFlight, maxBatched)}
	case units < 0:
		return nil, &PriceError{r.Method, units, fmt.Sprintf("%d units; a call costs at least 1", units)}
	case units > g.plan.user.units:
		return nil, &PriceError{r.Method, units, fmt.Sprintf("it costs %d units and a user's bucket holds %d; raise Config.UserBurst or ask for less at once", units, g.plan.user.units)}
	}
	c := charge{id: newID(), calls: calls, class: r.Class}
	if r.Turn != nil {
		c.ticket, c.ahead = r.Turn.show(r.Class)
	}
	c.price(units, g.plan.user, g.plan.project, g.plan.shares)
	c.horizons(g.horizon(r), r.MaxWait, g.plan.longest, g.plan.user.cap)
	if r.Turn != nil && r.MaxWait >= 0 {
		c.patience = max(limit-c.near, 0)
	}
	return &Grant{guard: g, account: r.Account, units: units, charge: c}, nil
}

// horizon is how many µs ahead a request may be reserved.
func (g *Guard) horizon(r Request) int64 {
	h := g.plan.horizons[r.Class]
	if r.MaxWait != 0 {
		h = min(h, max(r.MaxWait, 0).Microseconds())
	}
	return h
}

// price sets what units cost in these buckets.
func (c *charge) price(units int64, user, project bucket, shares [classes]int64) {
	c.units, c.user, c.project = units, user.cost(units), project.cost(units)
	c.share = shares[c.class]
	c.length = c.user * min(1+c.ahead, max(placeUS/c.user, 1))
}

// horizons sets how far ahead the call may be reserved, own by its class's horizon. A class above its share leaves room
// for one dear call of the others, so that these find a place before it however much it asks for.
func (c *charge) horizons(own int64, maxWait time.Duration, longest, capUS int64) {
	c.far = longest
	if maxWait != 0 {
		c.far = min(longest, max(maxWait, 0).Microseconds())
	}
	if c.near = min(own, c.far); c.near > 2*capUS {
		c.near -= capUS
	}
}

// newID is random: 64 bits for the few hundred charges that a user's record holds at a time.
func newID() string {
	var raw [8]byte
	for i, v := 0, rand.Uint64(); i < len(raw); i, v = i+1, v>>8 {
		raw[i] = byte(v)
	}
	var text [idLen]byte
	text[0] = '~'
	base64.RawURLEncoding.Encode(text[1:], raw[:])
	return string(text[:])
}
