package gmailquota

import (
	"sync"
	"time"
)

// localRecords is for how many calls a user's state has room at first: threads.get of one worker of three make 9 in the
// 10 s of a record.
const localRecords = 16

// local is the core in this process, with its share of the limits, for when Redis is away. Its users are those that
// used it in the present outage; they start empty, and in the debt that this process knows of in Redis. Without the
// fallback it only remembers what Redis must be told.
type local struct {
	clock  func() time.Time
	memory *memory
	plan   plan // of the buckets in Redis

	mu            sync.Mutex
	limits        limits
	user, project bucket
	users         map[string]*userState
	state         projectState
	unsettled     bool // the project has calls that Redis does not know
}

func newLocal(cfg Config, p plan, m *memory, now func() time.Time) (*local, error) {
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
	now := l.clock().UnixMicro()
	user, project := l.memory.of(account)
	if !l.unsettled {
		l.unsettled = true
		l.state = projectState{fullAt: max(now, project.full-l.plan.project.cap) + l.limits.project, born: now}
		for _, u := range l.users { // of an earlier outage, and not settled since
			u.fullAt = max(u.fullAt, now+l.limits.user)
		}
	}
	u := l.users[account]
	if u == nil {
		u = &userState{
			fullAt:  max(now, user.full-l.plan.user.cap) + l.plan.others + l.limits.user,
			records: make([]record, 0, localRecords),
		}
		l.users[account] = u
	}
	u.settle(now, l.limits)
	l.state.settle(now, l.limits)
	return u, now
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
	l.open(account)
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
		refund(u, &l.state, l.clock().UnixMicro(), l.limits, gr.charge, gr.decision)
	}
}

// penalize applies a refusal that Redis could not be told.
func (l *local) penalize(account string, r refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, now := l.open(account)
	penalize(u, &l.state, now, l.limits, r)
}

// debt is what Redis does not know of a bucket: calls reserved past it, and a refusal. The zero value is nothing.
type debt struct {
	any  bool
	hold int64 // µs from now that the refusal's pause lasts
	us   int64 // µs from now until nothing is reserved
}

func owed(fullAt, capUS int64, s penalty, now int64) debt {
	return debt{true, max(s.end-now, 0), max(fullAt-capUS-now, s.end-now, 0)}
}

// debt is what Redis must be told of an account and of the project.
func (l *local) debt(account string, now int64) (user, project debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[account]; u != nil {
		u.settle(now, l.limits)
		user = owed(u.fullAt, l.limits.user, u.penalty, now)
	}
	if l.unsettled {
		l.state.settle(now, l.limits)
		project = owed(l.state.fullAt, l.limits.project, l.state.penalty, now)
	}
	return user, project
}

// settled forgets what Redis now knows.
func (l *local) settled(account string, user, project bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if user {
		delete(l.users, account)
	}
	if project {
		l.unsettled = false
	}
}
