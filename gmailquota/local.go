package gmailquota

import (
	"sync"
	"time"
)

// local is the core in this process, with its share of the limits, for when Redis is away. Its users are those that
// used it in the present outage; they start empty. Without the fallback it only remembers what Redis must be told.
type local struct {
	clock func() time.Time

	mu            sync.Mutex
	limits        limits
	user, project bucket
	shares        [classes]int64
	users         map[string]*userState
	state         projectState
	unsettled     bool // the project has calls that Redis does not know
}

func newLocal(cfg Config, now func() time.Time) (*local, error) {
	if !cfg.LocalFallback {
		cfg.Workers = 1 // what the limits must be enough for
	}
	user, project, err := cfg.buckets(int64(cfg.Workers))
	if err != nil {
		return nil, err
	}
	h := cfg.horizons()
	longest := max(h[0], h[1], h[2])
	return &local{
		clock: now, user: user, project: project, shares: cfg.shares(), users: map[string]*userState{},
		limits: limits{user.cap, project.cap, max(int64(cfg.InFlight/cfg.Workers), 1), longest},
	}, nil
}

// open returns the account's state, making it empty where it is missing.
func (l *local) open(account string) (*userState, int64) {
	now := l.clock().UnixMicro()
	if !l.unsettled {
		l.unsettled = true
		l.state = newProject(now, l.limits)
		for _, u := range l.users { // of an earlier outage, and not settled since
			u.fullAt = max(u.fullAt, now+l.limits.user)
		}
	}
	u := l.users[account]
	if u == nil {
		u = &userState{fullAt: now + l.limits.user}
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
	gr.charge.price(gr.units, l.user, l.project, l.shares)
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
func (l *local) penalize(account string, scope Scope, stated int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, now := l.open(account)
	penalize(u, &l.state, now, l.limits, scope, stated)
}

// debt is for how many µs from now an account's and the project's bucket in Redis must stay empty, because calls went
// past them or a refusal could not be told; -1: they need not.
func (l *local) debt(account string) (user, project int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	user, project = -1, -1
	if !l.unsettled && len(l.users) == 0 {
		return user, project
	}
	now := l.clock().UnixMicro()
	if u := l.users[account]; u != nil {
		user = max(u.end-now, 0)
	}
	if l.unsettled {
		project = max(l.state.end-now, 0)
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
