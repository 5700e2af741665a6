package gmailquota

// The core decides from (state, now, request) alone; script.lua is the same functions in Lua, and a test holds them
// equal in every decision, wait and stored number. All times are microseconds, all numbers integers below 2^53.

const (
	// leaseUS is how long a call counts as under way after its admission when nobody releases it (its process died),
	// and how long the id of a charge is remembered, so that a repeated one is not charged again: 10 s.
	leaseUS = 10_000_000
	// inFlightRetryUS is the wait quoted when too many calls are under way: a call ends when Gmail answers, not at a
	// time that can be computed; Gmail's answers take some 100 ms.
	inFlightRetryUS = 250_000
)

// limits are what a decision is measured by.
type limits struct {
	user, project int64 // µs from empty to full
	inFlight      int64
	longest       int64 // the longest horizon, µs
	day           int64 // units of a day after which backfill waits for the next; 0: it never does
}

// charge is a request in the core's integers.
type charge struct {
	id            string
	calls         int64
	class         Class
	units         int64
	user, project int64 // cost, µs of each bucket's refill at the configured rate
	// near is how far ahead it may reserve, far how far while its class is below its share.
	near, far int64
	share     int64 // its class's part of the rate, percent
	// patience is how long it would wait for its turn; 0: it does not come back, and is given no place.
	patience int64
	ahead    int64 // calls that follow this one
	length   int64 // µs of the user's refill that a place must hold: this call and those ahead
	ticket         // what it was given by an earlier denial; zero: nothing
}

// The codes of a decision; the script returns the same numbers.
const (
	admitted = iota
	deniedUser
	deniedProject
	deniedInFlight
	deniedPenaltyUser
	deniedPenaltyProject
	deniedDay
)

var bucketNames = [...]string{
	deniedUser: BucketUser, deniedProject: BucketProject, deniedInFlight: BucketInFlight,
	deniedPenaltyUser: BucketPenaltyUser, deniedPenaltyProject: BucketPenaltyProject,
	deniedDay: BucketDay,
}

// What a decision also says.
const (
	signDay  = 1 // this charge reached the day's units
	signBusy = 2 // more than a quarter of the calls that may be under way are
)

// decision is what the core answers. user, project and taken are for a refund: see refund.
type decision struct {
	code          int64
	wait          int64
	user, project int64 // fullAt of both buckets after the charge; 0 for a replay. Denied: user is what a call waits when it is admitted then
	taken         int64 // µs of the user's refill that the charge took; denied: the wait if nobody waited before it
	ticket              // to show from now on, zero: as before
	signs         int64 // signDay, signBusy
}

// decide admits c now or later within its horizon, charging both buckets, or denies it and charges neither. The records
// must be pruned.
func decide(u *userState, p *projectState, now int64, l limits, c charge) decision {
	if i := u.find(c.id); i >= 0 {
		return decision{wait: max(u.records[i].at-now, 0)}
	}
	if rest := p.restOfDay(now, l); rest > 0 && c.class == Backfill {
		return decision{code: deniedDay, wait: rest, taken: rest}
	}
	c.slow(u.permille(now), p.permille(now))
	active := p.activeUsers()
	userWait := max(u.fullAt, now) + c.user - now - max(l.user, c.user)
	full := max(p.fullAt, now) + c.project
	projectWait := full - now - max(l.project, c.project)
	wait := max(userWait, projectWait, 0)
	userTill := c.till(userWait, max(u.shares[c.class], u.end), now)
	fair := int64(0)
	if projectWait > 0 && active > 1 { // others want its units
		fair = max(min(u.fair, u.parts[c.class])-now, 0)
	}
	projectTill := max(c.till(projectWait, max(p.shares[c.class], p.end), now), min(projectWait, fair), p.turn(u, now, l, c))
	till := max(userTill, projectTill, 0)
	turn := u.turn(now, l, c)
	crowded := u.live > 0 && u.live+c.calls > u.inFlightCap(now, l.inFlight)
	if till > 0 || turn > 0 || crowded {
		return denial(u, p, now, c, projectTill > userTill, wait, till, turn, fair, crowded)
	}
	at := now + wait
	// The user's bucket is charged as of the admission: were it charged now, refill that a project-wide wait lets pass
	// would count twice.
	before := max(u.fullAt, now)
	u.fullAt = max(u.fullAt, at) + c.user
	p.fullAt = full
	// What is taken while nobody must wait is held against nobody.
	if userWait > 0 {
		u.shares[c.class] = useShare(u.shares[c.class], now, c.ofShare(c.user))
	}
	if projectWait > 0 {
		p.shares[c.class] = useShare(p.shares[c.class], now, c.ofShare(c.project))
		part, share := c.part(active)
		u.fair, u.parts[c.class] = useShare(u.fair, now, part), useShare(u.parts[c.class], now, share)
	}
	u.insert(record{c.id, at, c.calls})
	u.live += c.calls
	return decision{wait: wait, user: u.fullAt, project: full, taken: u.fullAt - before, ticket: u.served(now, c), signs: p.use(c.units, l) | u.busy(now, l)}
}

// part is for how long the call uses up its user's part of the project, one of so many, and its class's share of that.
// Nine tenths of the project are shared out; what is left goes to who asks first, so that nobody waits for units that
// others let pass.
func (c *charge) part(users int64) (all, class int64) {
	all = min(c.project*users, maxPartUS) * 10 / 9
	return all, c.ofShare(all)
}

// ofShare is for how long a cost uses up its class's share of a rate.
func (c *charge) ofShare(cost int64) int64 { return (cost*100 + c.share - 1) / c.share }

// slow makes the charge dearer where Gmail gives less than the configured rate, see learned.
func (c *charge) slow(user, project int64) {
	c.user, c.length, c.project = scaled(c.user, user), scaled(c.length, user), scaled(c.project, project)
}

// till is how long a bucket denies c that would have it wait: it may reserve near, or far from when on its class is below
// its share, and not in a pause.
func (c *charge) till(wait, below, now int64) int64 {
	return min(wait-c.near, max(below-now, wait-c.far))
}

// useShare charges the share of a class, or of a user in the project. Who asks and is below it does not lose what it was late for, who comes
// out of silence begins anew, and who is above it, because nobody else asked, is charged for the last call only.
func useShare(share, now, cost int64) int64 {
	switch {
	case share == 0:
		return now + cost
	case share <= now:
		return share + cost
	}
	return max(share, now+cost)
}

// denial names what denies longest, and gives a place in the line.
func denial(u *userState, p *projectState, now int64, c charge, byProject bool, wait, till, turn, fair int64, crowded bool) decision {
	if denied := max(till, turn); crowded && denied < inFlightRetryUS {
		lapse := u.records[0].at + leaseUS - now // settled: after now; a released first record only shortens the estimate
		if retry := min(lapse, inFlightRetryUS); retry >= denied {
			return decision{code: deniedInFlight, wait: retry, taken: retry}
		}
	}
	code := int64(deniedUser)
	switch {
	case byProject && till > 0 && p.end > now:
		code = deniedPenaltyProject
	case byProject && till > 0:
		code = deniedProject
	case u.end > now:
		code = deniedPenaltyUser
	}
	ahead := max(wait-till, 0)
	t := queue(u, p, now, till, fair, byProject, c)
	if t == (ticket{}) {
		return decision{code: code, wait: max(till, turn), user: ahead, taken: till}
	}
	return decision{code: code, wait: t.from - now, user: ahead, taken: till, ticket: t}
}

// refund takes a charge back of which nothing reached Gmail; d is its decision. A bucket never gets back more than it
// would hold had the charge not been: what refilled since then is gone, and so is what calls reserved later wait for, as
// they keep their times. A second refund finds no charge.
func refund(u *userState, p *projectState, now int64, l limits, c charge, d decision) bool {
	i := u.find(c.id)
	if i < 0 || u.records[i].n == 0 {
		return false
	}
	u.live -= u.records[i].n
	u.records = append(u.records[:i], u.records[i+1:]...)
	u.fullAt = giveBack(u.fullAt, u.end, now, l.user, d.user, d.taken)
	p.fullAt = giveBack(p.fullAt, p.end, now, l.project, d.project, c.project)
	if l.day == 0 || p.used < l.day {
		p.used = max(p.used-c.units, 0)
	}
	return true
}

func giveBack(fullAt, penaltyEnd, now, capUS, after, taken int64) int64 {
	if fullAt > now+capUS {
		taken -= max(fullAt-after, 0)
	}
	back := fullAt - max(min(after-now, taken), 0)
	if penaltyEnd > now {
		back = max(back, penaltyEnd+capUS)
	}
	return back
}
