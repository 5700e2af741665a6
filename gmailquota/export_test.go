package gmailquota

import (
	"context"
	"slices"
	"time"
)

// Model is the core with the keys and lives that Redis keeps for the script: the differential test's other side, and the
// guard of the property tests.
type Model struct {
	Now      int64
	plan     plan
	limits   limits
	users    map[string]modelKey[userState]
	projects modelKey[projectState]
}

type modelKey[S any] struct {
	state   S
	expires int64 // µs; 0: no key
}

func NewModel(cfg Config, now int64) *Model {
	m := &Model{Now: now, users: map[string]modelKey[userState]{}}
	m.Reconfigure(cfg)
	return m
}

// Reconfigure changes the limits and keeps the state, as a restart with another configuration does.
func (m *Model) Reconfigure(cfg Config) {
	p, err := cfg.plan()
	if err != nil {
		panic(err)
	}
	m.plan, m.limits = p, p.limits()
}

type loaded struct {
	user               *userState
	project            *projectState
	udirty, pdirty     bool
	umissing, pmissing bool
}

func (m *Model) load(account string) loaded {
	p, u := m.projects, m.users[account]
	l := loaded{pmissing: p.expires <= m.Now, umissing: u.expires <= m.Now}
	if l.pmissing {
		p.state = newProject(m.Now, m.limits)
	}
	l.pdirty = p.state.settle(m.Now, m.limits) || l.pmissing
	if l.umissing {
		u.state = newUser(m.Now, &p.state, m.limits)
	}
	u.state.records = slices.Clone(u.state.records)
	l.udirty = u.state.settle(m.Now, m.limits) || l.umissing && m.Now-p.state.born < youngUS
	l.user, l.project = &u.state, &p.state
	return l
}

func (m *Model) saveUser(account string, u *userState) {
	m.users[account] = modelKey[userState]{*u, m.Now + u.ttl(m.Now, m.plan.userMargin)*1000}
}

func (m *Model) saveProject(p *projectState) {
	m.projects = modelKey[projectState]{*p, m.Now + p.ttl(m.Now, m.plan.userMargin)*1000}
}

// Step is one operation, for both sides.
type Step struct {
	Op               string // acquire, refund, penalize, reset, release
	Account, ID      string
	Calls, Units     int64
	Class            Class
	Horizon          int64
	MaxWait          time.Duration
	Patience, Ahead  int64
	From, To         int64
	HoldUser, HoldPr int64
	ToldUser, ToldPr Told
	Released         string
	After            Decision // refund
	Scope            Scope
	Stated, Admitted int64
}

// Told is what a process remembers of a bucket.
type Told struct{ Born, US int64 }

// Decision is a decision's numbers: code, wait, user, project, taken, ticket, the time, and the project's birth.
type Decision [10]int64

func (s Step) charge(p plan) charge {
	c := charge{id: s.ID, calls: s.Calls, class: s.Class, ahead: s.Ahead, patience: s.Patience, ticket: ticket{s.From, s.To}}
	c.price(s.Units, p.user, p.project, p.shares)
	c.horizons(s.Horizon, s.MaxWait, p.longest, p.user.cap)
	return c
}

func ids(text string) (out []string) {
	for ; text != ""; text = text[idLen:] {
		out = append(out, text[:idLen])
	}
	return out
}

// Do applies a step to the model.
func (m *Model) Do(s Step) Decision {
	if s.Op == "release" {
		return m.release(s)
	}
	l := m.load(s.Account)
	u, p, udirty, pdirty := l.user, l.project, l.udirty, l.pdirty
	var out Decision
	switch s.Op {
	case "acquire":
		u.hold(m.Now, s.HoldUser)
		p.hold(m.Now, s.HoldPr)
		udirty = u.recall(p, m.Now, m.limits, l.umissing, told{s.ToldUser.Born, s.ToldUser.US}) || udirty || s.HoldUser > 0
		pdirty = p.recall(m.Now, m.limits, l.pmissing, told{s.ToldPr.Born, s.ToldPr.US}) || pdirty || s.HoldPr > 0
		for _, id := range ids(s.Released) {
			udirty = u.release(id) || udirty
		}
		replay := u.find(s.ID) >= 0
		if p.seen(u, m.Now) {
			udirty, pdirty = true, true
		}
		lines, projectLines := u.lines, p.lines
		d := decide(u, p, m.Now, m.limits, s.charge(m.plan))
		if d.code == admitted && !replay {
			udirty, pdirty = true, true
		}
		udirty, pdirty = udirty || u.lines != lines, pdirty || p.lines != projectLines
		out = Decision{d.code, d.wait, d.user, d.project, d.taken, d.from, d.to, d.signs, m.Now, p.born}
	case "refund":
		a := s.After
		if refund(u, p, m.Now, m.limits, s.charge(m.plan), decision{user: a[2], project: a[3], taken: a[4]}) {
			out[0] = 1
			udirty, pdirty = true, true
		}
	case "penalize":
		before := *u
		penalize(u, p, m.Now, m.limits, refusal{s.Scope, s.Stated, s.Admitted})
		pdirty = pdirty || s.Scope == ScopeProject
		udirty = udirty || s.Scope == ScopeUser || s.Stated > 0 && s.Scope == ScopeConcurrency || u.cap != before.cap || u.capAt != before.capAt
		out[0] = max(u.end, p.end, m.Now) - m.Now
	case "reset":
		reset(u, p, m.Now, m.limits, s.Scope)
		udirty, pdirty = s.Scope != ScopeProject, pdirty || s.Scope == ScopeProject
		out[0] = 1
	}
	if pdirty {
		m.saveProject(p)
	}
	if udirty {
		m.saveUser(s.Account, u)
	}
	return out
}

func (m *Model) release(s Step) Decision {
	k := m.users[s.Account]
	if k.expires <= m.Now {
		return Decision{1}
	}
	k.state.records = slices.Clone(k.state.records)
	changed := k.state.settle(m.Now, m.limits)
	for _, id := range ids(s.Released) {
		changed = k.state.release(id) || changed
	}
	if changed {
		m.saveUser(s.Account, &k.state)
	}
	return Decision{1}
}

// Back sets the clock back; keys live as long as before.
func (m *Model) Back(now int64) {
	d := m.Now - now
	m.Now = now
	m.projects.expires -= d
	for a, k := range m.users {
		k.expires -= d
		m.users[a] = k
	}
}

// Lose drops keys as an eviction does; an empty account is the project's.
func (m *Model) Lose(account string) {
	if account == "" {
		m.projects.expires = 0
	} else {
		delete(m.users, account)
	}
}

// Stored is the text that Redis should hold, "" for no key.
func (m *Model) Stored(account string) (user, project string) {
	if k := m.users[account]; k.expires > m.Now {
		user = k.state.encode()
	}
	if m.projects.expires > m.Now {
		project = m.projects.state.encode()
	}
	return user, project
}

// Run sends a step to the script, around everything else that a Guard does.
func (g *Guard) Run(ctx context.Context, s Step) (Decision, error) {
	if s.Op == "acquire" {
		all, err := g.RunTogether(ctx, []Step{s})
		return all[0], err
	}
	keys := []string{g.projectKey, g.userKey(s.Account)}
	c, a := s.charge(g.plan), s.After
	var args []any
	switch s.Op {
	case "refund":
		args = []any{c.id, a[2], a[4], a[3], c.project, c.units}
	case "penalize":
		args = []any{s.Scope.String(), s.Stated, s.Admitted}
	case "reset":
		args = []any{s.Scope.String()}
	case "release":
		keys, args = keys[1:], []any{s.Released}
	}
	answer, err := g.run(ctx, s.Op, keys, args...)
	var d Decision
	copy(d[:], answer)
	return d, err
}

// RunTogether sends acquisitions in one run of the script.
func (g *Guard) RunTogether(ctx context.Context, steps []Step) ([]Decision, error) {
	all, out := make([]*question, len(steps)), make([]Decision, len(steps))
	for i, s := range steps {
		c := s.charge(g.plan)
		all[i] = &question{key: g.userKey(s.Account), request: c.encode(s.HoldUser, s.HoldPr,
			told{s.ToldUser.Born, s.ToldUser.US}, told{s.ToldPr.Born, s.ToldPr.US}, s.Released)}
	}
	g.askFor(ctx, all)
	for i, q := range all {
		if q.err != nil {
			return out, q.err
		}
		out[i] = *q.answer
	}
	return out, nil
}

// Keys are the guard's keys for an account and its project.
func (g *Guard) Keys(account string) (user, project string) { return g.userKey(account), g.projectKey }

// NewID makes a charge's id.
func NewID() string { return newID() }

// HorizonUS is a class's horizon in µs.
func (m *Model) HorizonUS(c Class) int64 { return m.plan.horizons[c] }

// FlushReleases sends what waits to ride on a decision.
func (g *Guard) FlushReleases(ctx context.Context) error { return g.releases.flush(ctx, false) }

// FlushUrgent is what a timer does a second after an end that is to be told soon.
func (g *Guard) FlushUrgent(ctx context.Context) error { return g.releases.flush(ctx, true) }

// Opened makes the breaker as if Redis had just failed for d.
func (g *Guard) Opened(d time.Duration) {
	g.breaker.open, g.breaker.until = d, g.breaker.now().Add(d)
}

// Scouts are one worker's: see scouts.
type Scouts struct{ scouts scouts }

// Quote is how many µs a worker is told to wait.
func (s *Scouts) Quote(account string, class Class, now int64, d Decision) int64 {
	us := time.Microsecond
	return s.scouts.quote(scoutKey{account, class}, time.UnixMicro(now), time.Duration(d[1])*us, time.Duration(d[4])*us).Microseconds()
}

// Queued is how many callers wait for the next run of the script.
func (g *Guard) Queued() int {
	g.combiner.mu.Lock()
	defer g.combiner.mu.Unlock()
	return len(g.combiner.queue)
}

// Tell adds to an acquisition what the guard tells with it. learn takes in the answer.
func (g *Guard) Tell(s Step) (told Step, learn func(Decision)) {
	n := g.note(s.Account)
	s.HoldUser, s.HoldPr = n.hold[0], n.hold[1]
	s.ToldUser, s.ToldPr = Told{n.told[0].born, n.told[0].us}, Told{n.told[1].born, n.told[1].us}
	return s, func(d Decision) { g.learn(n, decision{code: d[0], user: d[2], project: d[3]}, d[8], d[9]) }
}

// FullIn is how long it is until an account's and the project's bucket is full.
func (m *Model) FullIn(account string) (user, project time.Duration) {
	l := m.load(account)
	us := func(full int64) time.Duration { return time.Duration(max(full-m.Now, 0)) * time.Microsecond }
	return us(l.user.fullAt), us(l.project.fullAt)
}

// SetQueueTime sets how long a caller waits for its turn to ask Redis.
func (g *Guard) SetQueueTime(d time.Duration) {
	g.combiner.mu.Lock()
	defer g.combiner.mu.Unlock()
	g.combiner.patience = d
}

// Waiting is of how many accounts Redis must be told that calls ended.
func (g *Guard) Waiting() int {
	g.releases.mu.Lock()
	defer g.releases.mu.Unlock()
	return len(g.releases.waiting)
}

// LocalUsers is how many users' calls Redis may not know of.
func (g *Guard) LocalUsers() int {
	g.local.mu.Lock()
	defer g.local.mu.Unlock()
	return len(g.local.users)
}
