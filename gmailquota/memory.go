package gmailquota

import "sync"

// memory is what this process was told of the buckets in Redis, for when their state is lost or Redis goes away. Only
// buckets that are not full yet matter, so it holds the users of the last half minute or so.
type memory struct {
	mu      sync.Mutex
	users   map[string]known
	project known
	sweepAt int // users
}

// known is when a bucket will be full, by this process's clock.
type known struct {
	born int64 // the project's birth, by which a lost state is noticed
	full int64 // µs
}

// told puts k as the script wants it, with what other processes may have charged since.
func (k known) told(now, others int64) told {
	us := max(k.full-now, 0)
	if us > 0 && k.born >= 0 { // of its local buckets each process tells all
		us += others
	}
	return told{k.born, us}
}

// with joins what a decision answered, next, to what is known now. The decision told Redis what was known before.
func (k known) with(before, next known) known {
	switch {
	case k == before:
		return next
	case k.born != next.born: // another decision's answer has not been told to the new state
		next.born = -1
	}
	next.full = max(next.full, k.full)
	return next
}

func (m *memory) of(account string) (user, project known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users[account], m.project
}

// learn takes in a decision's answer; before is what was known when it was asked for.
func (m *memory) learn(account string, now int64, before, next [2]known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == nil {
		m.users = map[string]known{}
	}
	m.users[account] = m.users[account].with(before[0], next[0])
	m.project = m.project.with(before[1], next[1])
	if len(m.users) < m.sweepAt {
		return
	}
	for a, k := range m.users {
		if k.full <= now {
			delete(m.users, a)
		}
	}
	m.sweepAt = max(2*len(m.users), 100)
}
