package gmailquota

import "math"

const (
	// A project key younger than this may be a sign of lost state: then a missing user starts empty, not full.
	youngUS = minuteUS
	// shareMemoryUS is how late a class may be for its share and still get it: the time that a few dear calls take.
	shareMemoryUS = 3_000_000
	// fairMemoryUS is the same for a user and its part of the project, of which a thousand users have little.
	fairMemoryUS = minuteUS
	// maxPartUS keeps a user's part of a project with very many users within 2^53: a year.
	maxPartUS = 1 << 45
	// The project's key lives for a day at least, not keyTTL: its age tells whether state was lost, and there is one.
	projectLifeUS = 24 * 3600 * 1_000_000
)

// bucket is a token bucket's shape: units at most, refill in units a minute.
type bucket struct {
	units, refill int64
	cap           int64 // µs from empty to full
}

func newBucket(units, refill int64) bucket {
	b := bucket{units: units, refill: refill}
	b.cap = b.cost(units)
	return b
}

// cost is how many µs of refill a price takes, rounded up.
func (b bucket) cost(units int64) int64 {
	return (units*minuteUS + b.refill - 1) / b.refill
}

// tokens is what a bucket that is full at fullAt holds, to the nearest unit (each charge is rounded up to a whole µs);
// negative is debt.
func (b bucket) tokens(fullAt, now int64) int64 {
	return int64(math.Round(float64(b.cap-max(fullAt-now, 0)) * float64(b.refill) / minuteUS))
}

// record is one charge: a call reserved or under way (n > 0 calls), or one that ended (n = 0) and is remembered so that
// a replay is recognized.
type record struct {
	id string // 12 characters, the first is ~; of a restart it is !
	at int64  // admission
	n  int64
}

type userState struct {
	fullAt int64
	penalty
	cap     int64          // in-flight cap after concurrency refusals; 0: the configured one
	capAt   int64          // when it was lowered
	live    int64          // calls reserved or under way: the sum of n
	shares  [classes]int64 // when a class is below its share again; 0: it is
	lines   [classes]int64 // the end of the last place given out in a class's line; 0: nobody waits
	fair    int64          // when the user has used no more than its part of the project; 0: it has not
	parts   [classes]int64 // the same for a class's share of this part
	epoch   int64          // in which the project last counted the user
	records []record       // by admission time
}

type projectState struct {
	fullAt int64
	born   int64 // when the key appeared
	penalty
	shares   [classes]int64
	lines    [classes]int64 // until when those that a class's calls were sent away for have the project's units
	epoch    int64          // the present one's number
	users    int64          // that asked in it
	previous int64          // that asked in the one before
	day      int64          // see turnDay
	used     int64          // units charged on that day
}

// newProject starts empty: a missing key may be lost state.
func newProject(now int64, l limits) projectState {
	p := projectState{fullAt: now + l.project, born: now}
	p.turnDay(now)
	return p
}

// newUser starts full, unless the project's key is so young that the user's may have been lost with it.
func newUser(now int64, p *projectState, l limits) userState {
	if now-p.born >= youngUS {
		return userState{}
	}
	u := userState{fullAt: now + l.user}
	u.restart(now, now, p.born/restartUnit)
	return u
}

// settle makes a stored state fit the present: it forgets charges whose time is over, and what a clock that was set back
// has left in a future that no charge can reach. Such a bucket is empty, not in debt for hours. It reports whether the
// clock made it change something, which must be stored even if nothing else is, or it would be found again and again.
func (u *userState) settle(now int64, l limits) (repaired bool) {
	fullAt, capAt := u.fullAt, u.capAt
	paused := u.penalty.settle(now)
	u.fullAt = u.reachable(u.fullAt, now, l.user, l.longest)
	u.capAt = min(u.capAt, now)
	repaired = paused || u.fullAt != fullAt || u.capAt != capAt
	for n := len(u.records); n > 0 && u.records[n-1].at > now+l.longest; n-- {
		u.live -= u.records[n-1].n
		u.records = u.records[:n-1]
		repaired = true
	}
	u.prune(now)
	if repaired {
		u.shares, u.lines, u.fair, u.parts = [classes]int64{}, [classes]int64{}, 0, [classes]int64{}
	}
	for k := range classes {
		u.shares[k], u.lines[k] = future(u.shares[k], now-shareMemoryUS), future(u.lines[k], now)
	}
	u.fair = future(u.fair, now-fairMemoryUS)
	for k := range classes {
		u.parts[k] = future(u.parts[k], now-fairMemoryUS)
	}
	return repaired
}

func (p *projectState) settle(now int64, l limits) (repaired bool) {
	fullAt, born := p.fullAt, p.born
	repaired = p.penalty.settle(now)
	p.fullAt = p.reachable(p.fullAt, now, l.project, l.longest)
	p.born = min(p.born, now)
	p.turnDay(now)
	repaired = repaired || p.fullAt != fullAt || p.born != born
	for k := range classes {
		p.shares[k], p.lines[k] = future(p.shares[k], now-shareMemoryUS), future(p.lines[k], now)
		if repaired {
			p.shares[k], p.lines[k] = 0, 0
		}
	}
	return repaired
}

// future is t, or 0 where it is past now: the states of those who rest stay short.
func future(t, now int64) int64 {
	if t <= now {
		return 0
	}
	return t
}

// reach is when a bucket is full at the latest: charges go as far as the longest horizon.
func (s *penalty) reach(now, capUS, longest int64) int64 {
	return max(now, s.end) + scaled(capUS, s.slowest()) + longest
}

// reachable is fullAt; or it is when an empty bucket is full, if no charge can have led there.
func (s *penalty) reachable(fullAt, now, capUS, longest int64) int64 {
	if fullAt > s.reach(now, capUS, longest) {
		return max(now, s.end) + capUS
	}
	return fullAt
}

func (u *userState) find(id string) int {
	for i := range u.records {
		if u.records[i].id == id {
			return i
		}
	}
	return -1
}

func (u *userState) insert(r record) {
	i := len(u.records)
	u.records = append(u.records, r)
	for ; i > 0 && u.records[i-1].at > r.at; i-- {
		u.records[i] = u.records[i-1]
	}
	u.records[i] = r
}

// prune forgets the charges whose time is over; calls among them that nobody released no longer count.
func (u *userState) prune(now int64) {
	n := 0
	for n < len(u.records) && u.records[n].at+leaseUS <= now {
		u.live -= u.records[n].n
		n++
	}
	if n > 0 {
		u.records = append(u.records[:0], u.records[n:]...)
	}
}

// busy returns signBusy if the ends of calls are to be told soon. What is not told lapses, and holds at most that quarter of
// the cap until then.
func (u *userState) busy(now int64, l limits) int64 {
	if 4*u.live > u.inFlightCap(now, l.inFlight) {
		return signBusy
	}
	return 0
}

// release ends a call; its charge stays remembered. It reports whether there was one to end.
func (u *userState) release(id string) bool {
	i := u.find(id)
	if i < 0 || u.records[i].n == 0 {
		return false
	}
	u.live -= u.records[i].n
	u.records[i].n = 0
	return true
}

// until is when u has nothing left to remember.
func (u *userState) until() int64 {
	t := max(u.fullAt, u.penalty.until())
	if u.cap > 0 {
		t = max(t, u.capAt+capMemoryUS)
	}
	if n := len(u.records); n > 0 {
		t = max(t, u.records[n-1].at+leaseUS)
	}
	return max(t, u.lines[0], u.lines[1], u.lines[2])
}

func (p *projectState) until() int64 {
	return max(p.fullAt, p.penalty.until())
}

// ttl is how many ms a user's key lives from now.
func (u *userState) ttl(now, margin int64) int64 { return ceilMS(max(u.until()-now, 0) + margin) }

// ttl is how many ms the project's key lives.
func (p *projectState) ttl(now, margin int64) int64 {
	return ceilMS(max(p.until()-now+margin, projectLifeUS))
}

func ceilMS(us int64) int64 { return (us + 999) / 1000 }
