package gmailquota

import "math"

// The core decides from (state, now, request) alone; script.lua is the same functions in Lua, and a test holds them
// equal in every decision, wait and stored number. All times are microseconds, all numbers integers below 2^53.

const (
	// leaseUS is how long a call counts as under way after its admission when nobody releases it (its process died),
	// and how long the id of a charge is remembered, so that a repeated one is not charged again: 10 s.
	leaseUS = 10_000_000
	// inFlightRetryUS is the wait quoted when too many calls are under way: a call ends when Gmail answers, not at a
	// time that can be computed; Gmail's answers take some 100 ms.
	inFlightRetryUS = 250_000
	// A project key younger than this may be a sign of lost state: then a missing user starts empty, not full.
	youngUS = minuteUS
	// The project's key lives for a day at least, not keyTTL: its age tells whether state was lost, and there is one.
	projectLifeUS = 24 * 3600 * 1_000_000
	// The first refusal without a stated time pauses for 1 s, each further episode for twice as long, up to 5 min.
	strikeBaseUS = 1_000_000
	strikeMaxUS  = 300_000_000
	// Strikes are forgotten 10 min after the last pause ended.
	strikeMemoryUS = 600_000_000
	// No pause is longer than a day: Gmail's own longest is the rest of one. A later end is a clock that was set back.
	pauseMaxUS = 24 * 3600 * 1_000_000
	// After a concurrency refusal the cap is halved; refusals within 5 s are the same episode. Each minute gives one
	// call back.
	capEpisodeUS = 5_000_000
	capGrowUS    = minuteUS
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
	id string // 12 characters, the first is ~
	at int64  // admission
	n  int64
}

// penalty is a pause after a refusal.
type penalty struct {
	end     int64 // admissions begin again; 0: there was none
	strikes int64 // episodes so far
}

type userState struct {
	fullAt int64
	penalty
	cap     int64    // in-flight cap after concurrency refusals; 0: the configured one
	capAt   int64    // when it was lowered
	live    int64    // calls reserved or under way: the sum of n
	records []record // by admission time
}

type projectState struct {
	fullAt int64
	born   int64 // when the key appeared
	penalty
}

// limits are what a decision is measured by.
type limits struct {
	user, project int64 // µs from empty to full
	inFlight      int64
	longest       int64 // the longest horizon, µs
}

// charge is a request in the core's integers.
type charge struct {
	id            string
	calls         int64
	user, project int64 // cost, µs of each bucket's refill
	horizon       int64 // how far ahead it may reserve
}

// The codes of a decision; the script returns the same numbers.
const (
	admitted = iota
	deniedUser
	deniedProject
	deniedInFlight
	deniedPenaltyUser
	deniedPenaltyProject
)

var bucketNames = [...]string{
	deniedUser: BucketUser, deniedProject: BucketProject, deniedInFlight: BucketInFlight,
	deniedPenaltyUser: BucketPenaltyUser, deniedPenaltyProject: BucketPenaltyProject,
}

// decision is what the core answers. user, project and taken are for a refund: see refund.
type decision struct {
	code          int64
	wait          int64
	user, project int64 // fullAt of both buckets after the charge; 0 for a replay
	taken         int64 // µs of the user's refill that the charge took
}

// newProject starts empty: a missing key may be lost state.
func newProject(now int64, l limits) projectState {
	return projectState{fullAt: now + l.project, born: now}
}

// newUser starts full, unless the project's key is so young that the user's may have been lost with it.
func newUser(now int64, p *projectState, l limits) userState {
	if now-p.born >= youngUS {
		return userState{}
	}
	u := userState{fullAt: now + l.user}
	u.restart(now)
	return u
}

// hold lengthens a pause that another process counted; the bucket's emptiness until then it tells too, see recall.
func (s *penalty) hold(now, us int64) {
	if us > 0 {
		s.end = max(s.end, now+us)
	}
}

// settle makes a stored state fit the present: it forgets charges whose time is over, and what a clock that was set back
// has left in a future that no charge can reach. Such a bucket is empty, not in debt for hours. It reports whether the
// clock made it change something, which must be stored even if nothing else is, or it would be found again and again.
func (u *userState) settle(now int64, l limits) (repaired bool) {
	fullAt, capAt := u.fullAt, u.capAt
	repaired = u.penalty.settle(now)
	u.fullAt = reachable(u.fullAt, u.end, now, l.user, l.longest)
	u.capAt = min(u.capAt, now)
	repaired = repaired || u.fullAt != fullAt || u.capAt != capAt
	for n := len(u.records); n > 0 && u.records[n-1].at > now+l.longest; n-- {
		u.live -= u.records[n-1].n
		u.records = u.records[:n-1]
		repaired = true
	}
	u.prune(now)
	return repaired
}

func (p *projectState) settle(now int64, l limits) (repaired bool) {
	fullAt, born := p.fullAt, p.born
	repaired = p.penalty.settle(now)
	p.fullAt = reachable(p.fullAt, p.end, now, l.project, l.longest)
	p.born = min(p.born, now)
	return repaired || p.fullAt != fullAt || p.born != born
}

// settle ends a pause that no refusal can have asked for.
func (s *penalty) settle(now int64) (repaired bool) {
	if s.end <= now+pauseMaxUS {
		return false
	}
	s.end = now
	return true
}

func reachable(fullAt, penaltyEnd, now, capUS, longest int64) int64 {
	from := max(now, penaltyEnd)
	if fullAt > from+capUS+longest {
		return from + capUS
	}
	return fullAt
}

// decide admits c now or later within its horizon, charging both buckets, or denies it and changes neither. The records
// must be pruned.
func decide(u *userState, p *projectState, now int64, l limits, c charge) decision {
	if i := u.find(c.id); i >= 0 {
		return decision{wait: max(u.records[i].at-now, 0)}
	}
	userWait := max(u.fullAt, now) + c.user - now - l.user
	full := max(p.fullAt, now) + c.project
	projectWait := full - now - l.project
	wait := max(userWait, projectWait, 0)
	crowded := u.live > 0 && u.live+c.calls > u.inFlightCap(now, l.inFlight)
	if wait > c.horizon || crowded {
		return denial(u, p, now, userWait, projectWait, wait-c.horizon, crowded)
	}
	at := now + wait
	// The user's bucket is charged as of the admission: were it charged now, refill that a project-wide wait lets pass
	// would count twice.
	before := max(u.fullAt, now)
	u.fullAt = max(u.fullAt, at) + c.user
	p.fullAt = full
	u.insert(record{c.id, at, c.calls})
	u.live += c.calls
	return decision{wait: wait, user: u.fullAt, project: full, taken: u.fullAt - before}
}

// denial names what denies longest.
func denial(u *userState, p *projectState, now, userWait, projectWait, wait int64, crowded bool) decision {
	if crowded && wait < inFlightRetryUS {
		lapse := u.records[0].at + leaseUS - now // settled: after now; a released first record only shortens the estimate
		if retry := min(lapse, inFlightRetryUS); retry >= wait {
			return decision{code: deniedInFlight, wait: retry}
		}
	}
	code := int64(deniedUser)
	switch {
	case projectWait > userWait && p.end > now:
		code = deniedPenaltyProject
	case projectWait > userWait:
		code = deniedProject
	case u.end > now:
		code = deniedPenaltyUser
	}
	return decision{code: code, wait: wait}
}

// inFlightCap grows back one call a minute after it was lowered.
func (u *userState) inFlightCap(now, configured int64) int64 {
	if u.cap == 0 {
		return configured
	}
	return min(configured, u.cap+max(now-u.capAt, 0)/capGrowUS)
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

// refund takes a charge back of which nothing reached Gmail; d is its decision. A bucket never gets back more than it
// would hold had the charge not been: what refilled since then is gone. A second refund finds no charge.
func refund(u *userState, p *projectState, now int64, l limits, c charge, d decision) bool {
	i := u.find(c.id)
	if i < 0 || u.records[i].n == 0 {
		return false
	}
	u.live -= u.records[i].n
	u.records = append(u.records[:i], u.records[i+1:]...)
	u.fullAt = giveBack(u.fullAt, u.end, now, l.user, d.user, d.taken)
	p.fullAt = giveBack(p.fullAt, p.end, now, l.project, d.project, c.project)
	return true
}

func giveBack(fullAt, penaltyEnd, now, capUS, after, taken int64) int64 {
	back := fullAt - max(min(after-now, taken), 0)
	if penaltyEnd > now {
		back = max(back, penaltyEnd+capUS)
	}
	return back
}

// strike starts a pause after a refusal, or, within one, moves its end to a later stated time only. stated is in µs from
// now, 0 if Gmail named none. It returns the bucket's new fullAt: nothing is admitted before the end, and the bucket is
// empty then, so that calls come back one by one.
func (s *penalty) strike(now, capUS, fullAt, stated int64) int64 {
	if now < s.end {
		if now+stated <= s.end {
			return fullAt
		}
		s.end = now + stated
	} else {
		if now-s.end >= strikeMemoryUS {
			s.strikes = 0
		}
		pause := int64(strikeMaxUS)
		if s.strikes < 9 { // 2^9 s is above the longest pause
			pause = min(int64(strikeBaseUS)<<s.strikes, strikeMaxUS)
			s.strikes++
		}
		s.end = now + max(pause, stated)
	}
	return max(fullAt, s.end+capUS)
}

// crowd halves the in-flight cap after a concurrency refusal.
func (u *userState) crowd(now, configured int64) {
	if u.cap > 0 && now-u.capAt < capEpisodeUS {
		return
	}
	u.cap = max(u.inFlightCap(now, configured)/2, 1)
	u.capAt = now
}

// until is when u has nothing left to remember.
func (u *userState) until() int64 {
	t := u.fullAt
	if u.strikes > 0 {
		t = max(t, u.end+strikeMemoryUS)
	}
	if u.cap > 0 {
		t = max(t, u.capAt+strikeMemoryUS)
	}
	if n := len(u.records); n > 0 {
		t = max(t, u.records[n-1].at+leaseUS)
	}
	return t
}

func (p *projectState) until() int64 {
	t := p.fullAt
	if p.strikes > 0 {
		t = max(t, p.end+strikeMemoryUS)
	}
	return t
}

// ttl is how many ms a user's key lives from now.
func (u *userState) ttl(now, margin int64) int64 { return ceilMS(max(u.until()-now, 0) + margin) }

// ttl is how many ms the project's key lives.
func (p *projectState) ttl(now, margin int64) int64 {
	return ceilMS(max(p.until()-now+margin, projectLifeUS))
}

func ceilMS(us int64) int64 { return (us + 999) / 1000 }

// penalize applies a refusal; stated is in µs from now, 0 if Gmail named no time.
func penalize(u *userState, p *projectState, now int64, l limits, scope Scope, stated int64) {
	if scope == ScopeProject {
		p.fullAt = p.strike(now, l.project, p.fullAt, stated)
		return
	}
	if scope == ScopeConcurrency {
		u.crowd(now, l.inFlight)
	}
	if scope == ScopeUser || stated > 0 {
		u.fullAt = u.strike(now, l.user, u.fullAt, stated)
	}
}
