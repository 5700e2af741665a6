package gmailquota

import "sync"

// localRecords is for how many calls a user's state has room at first: threads.get of one worker of three make 9 in the
// 10 s of a record.
const localRecords = 16

// local is the core in this process, with its share of the limits, for when Redis is away. Its users are those that
// used it in the present outage; they start empty, and in the debt that this process knows of in Redis. Without the
// fallback it only remembers what Redis must be told.
type local struct {
	clock  func() int64 // µs
	memory *memory
	plan   plan // of the buckets in Redis

	mu            sync.Mutex
	limits        limits
	user, project bucket
	users         map[string]*userState
	state         projectState
	sweepAt       int64 // µs
	unsettled     bool  // the project has calls that Redis does not know
}

func newLocal(cfg Config, p plan, m *memory, now func() int64) (*local, error) {
	if !cfg.LocalFallback {
		cfg.Workers = 1 // what the limits must be enough for
	}
	user, project, err := cfg.buckets(int64(cfg.Workers))
	if err != nil {
		return nil, err
	}
	return &local{
		clock: now, memory: m, plan: p, user: user, project: project, users: map[string]*userState{},
		limits: limits{user.cap, project.cap, max(int64(cfg.InFlight/cfg.Workers), 1), p.longest, 0},
	}, nil
}

// open returns the account's state. Where it is missing it begins empty, after what is reserved in Redis.
func (l *local) open(account string) (*userState, int64) {
	now := l.clock()
	user, project := l.memory.of(account, now)
	if !l.unsettled {
		l.unsettled = true
		l.state = projectState{fullAt: l.after(project, now, l.plan.project, 0) + l.limits.project, born: now}
		for _, u := range l.users { // of an earlier outage, and not settled since
			u.fullAt = max(u.fullAt, now+l.limits.user)
		}
	}
	u := l.users[account]
	if u == nil {
		u = &userState{
			fullAt:  l.after(user, now, l.plan.user, l.plan.others) + l.limits.user,
			records: make([]record, 0, localRecords),
		}
		l.users[account] = u
	}
	u.settle(now, l.limits)
	l.state.settle(now, l.limits)
	return u, now
}

// after is when nothing is reserved any more in a bucket of Redis, in which others may have charged so much more.
func (l *local) after(k known, now int64, b bucket, others int64) int64 {
	return min(max(now, k.latest()-b.cap)+others, now+l.plan.longest)
}

// sweep forgets, once a minute, the accounts of which Redis need not be told any more: a minute ago, and Gmail counts by
// minutes, their bucket there had refilled. It is not for while Redis is away: who is forgotten begins empty.
func (l *local) sweep(now int64) {
	if len(l.users) == 0 || now < l.sweepAt {
		return
	}
	l.sweepAt = now + minuteUS
	for a, u := range l.users {
		if max(u.until(), u.fullAt-l.limits.user+l.plan.user.cap)+minuteUS <= now {
			delete(l.users, a)
		}
	}
}

// decide decides for a grant and prices it by the local buckets.
func (l *local) decide(gr *Grant) decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, now := l.open(gr.account)
	gr.charge.price(gr.units, l.user, l.project, l.plan.shares)
	gr.charge.calls = min(gr.charge.calls, l.limits.inFlight)
	l.state.seen(u, now)
	return decide(u, &l.state, now, l.limits, gr.charge)
}

// passed notes that a call of the account went past all buckets.
func (l *local) passed(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, now := l.open(account)
	u.fullAt, l.state.fullAt = max(u.fullAt, now+l.limits.user), max(l.state.fullAt, now+l.limits.project)
}

func (l *local) release(account, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[account]; u != nil {
		u.release(id)
	}
}

func (l *local) refund(gr *Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[gr.account]; u != nil {
		refund(u, &l.state, l.clock(), l.limits, gr.charge, gr.decision)
	}
}

// penalize applies a refusal that Redis could not be told.
func (l *local) penalize(account string, r refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, now := l.open(account)
	penalize(u, &l.state, now, l.limits, r)
}

// reset is Guard.Reset for what Redis does not know.
func (l *local) reset(account string, what Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[account]
	if u == nil {
		u = new(userState) // it is nobody, or the project is what is reset
	}
	reset(u, &l.state, l.clock(), l.limits, what)
}

// debt is what Redis does not know of a bucket: calls reserved past it, and a refusal. The zero value is nothing. Times
// are µs by this process's clock.
type debt struct {
	any  bool
	free int64 // when nothing is reserved any more
	end  int64 // of the refusal's pause
}

// hold is how many µs the pause lasts from now.
func (d debt) hold(now int64) int64 { return max(d.end-now, 0) }

// full is when a bucket of Redis is full that pays this debt.
func (d debt) full(now, capUS int64) int64 { return max(d.free, d.end, now) + capUS }

func owed(fullAt, capUS int64, s penalty) debt { return debt{true, fullAt - capUS, s.end} }

// covers tells whether d was all of what is owed now.
func (d debt) covers(now debt) bool { return d.any && d.free >= now.free && d.end >= now.end }

// debt is what Redis must be told of an account and of the project.
func (l *local) debt(account string, now int64) [2]debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all [2]debt
	if u := l.users[account]; u != nil {
		u.settle(now, l.limits)
		all[0] = owed(u.fullAt, l.limits.user, u.penalty)
	}
	if l.unsettled {
		l.state.settle(now, l.limits)
		all[1] = owed(l.state.fullAt, l.limits.project, l.state.penalty)
	}
	return all
}

// settled forgets what Redis was told, unless more has come to it since.
func (l *local) settled(account string, now int64, told [2]debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	if u := l.users[account]; u != nil && told[0].covers(owed(u.fullAt, l.limits.user, u.penalty)) {
		delete(l.users, account)
	}
	if told[1].covers(owed(l.state.fullAt, l.limits.project, l.state.penalty)) {
		l.unsettled = false
	}
}
