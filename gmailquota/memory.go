package gmailquota

import "sync"

// memory is what this process was told of the buckets in Redis, for when their state is lost or Redis goes away. Only
// buckets that are not full yet matter, so it holds the users of the last half minute or so.
type memory struct {
	caps  [2]int64 // µs from empty to full, of the user's and of the project's bucket
	reach [2]int64 // µs from now to where it can be full at the latest

	mu      sync.Mutex
	users   map[string]known
	project known
	sweepAt int // users
}

// heard is when a bucket is full, µs by this process's clock, and in which state: the project's birth at that time, or
// localBorn.
type heard struct{ born, full int64 }

// localBorn is for what local buckets let pass: no state in Redis knows of it.
const localBorn = -1

// known is what there is to know of a bucket: of the state that Redis holds, and of those lost before it as far as that
// one may not have been told. Of decisions under way together, those that were asked before the others were answered
// did not tell what these had charged.
type known struct {
	heard
	lost heard
}

// tell is what a decision tells Redis: what the state there may not know; else what it holds, in case it is lost.
func (k known) tell(now int64) heard {
	if k.lost.full > now {
		return k.lost
	}
	return k.heard
}

// latest is when all that is known of has refilled.
func (k known) latest() int64 { return max(k.full, k.lost.full) }

// with joins the answer to a decision that said something to Redis. asked is the state that was known when it was asked.
func (k known) with(asked int64, said, answer heard) known {
	if said.born == answer.born { // it told that state nothing new
		said.full = 0
	}
	answer.full = max(answer.full, said.full)
	switch {
	case k.born == answer.born:
		k.full = max(k.full, answer.full)
	case k == known{}:
		return known{heard: answer}
	case asked == answer.born: // it is late: by now another state has answered
		k.lost = later(k.lost, answer)
		return k
	default:
		k.heard, k.lost = answer, later(k.lost, k.heard)
	}
	if k.lost.full <= said.full {
		k.lost = heard{}
	}
	return k
}

func later(a, b heard) heard {
	if a.full > b.full {
		return a
	}
	return b
}

// of returns what is known of an account's and of the project's bucket. A time that no charge can reach is from before the
// clock was set back; such a bucket is taken for an empty one, as the core does.
func (m *memory) of(account string, now int64) (user, project known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	user = m.users[account]
	if user.latest() > now+m.reach[0] {
		user = known{heard: heard{user.born, now + m.caps[0]}}
		m.users[account] = user
	}
	if m.project.latest() > now+m.reach[1] {
		m.project = known{heard: heard{m.project.born, now + m.caps[1]}}
	}
	return user, m.project
}

// learn takes in the answer to a decision: see known.with, for both buckets.
func (m *memory) learn(account string, now int64, asked [2]known, said, answer [2]heard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == nil {
		m.users = map[string]known{}
	}
	for i, reach := range m.reach { // a pause goes further, and what was on its way for long seems to
		said[i].full, answer[i].full = min(said[i].full, now+reach), min(answer[i].full, now+reach)
	}
	m.users[account] = m.users[account].with(asked[0].born, said[0], answer[0])
	m.project = m.project.with(asked[1].born, said[1], answer[1])
	if len(m.users) < m.sweepAt {
		return
	}
	for a, k := range m.users {
		if k.latest() <= now {
			delete(m.users, a)
		}
	}
	m.sweepAt = max(2*len(m.users), 100)
}
