package gmailquota

// A class's calls of a user that were denied come back in the order in which they came: each is told when its turn comes.
// The line is one number, the end of the last place given out; what else there is to know is in the tickets.

const (
	// graceUS is how late a ticket still counts: jobs that come back wait for a worker's slot.
	graceUS = 5_000_000
	// lineUS is how far ahead places are given out, beyond the time at which the bucket could admit the call: 10 min are
	// 1,500 calls of 40 units. Who comes later shares the last place, and asks again then.
	lineUS = 600_000_000
	// placeUS bounds one place: 30 s are 73 calls of 40 units.
	placeUS = 30_000_000
	// maxAhead bounds Expect, and patienceUS what waits for its turn for as long as it takes: 35 years.
	maxAhead   = 1000
	patienceUS = 1 << 50
	// epochUS is how long a user counts as one of those that share the project: this minute and the next, as those who
	// wait for their turn do not ask meanwhile.
	epochUS = 60_000_000
)

// ticket is a place in the line: between these times its holder's calls need no other place. Zero is none.
type ticket struct{ from, to int64 }

// counts tells whether the call's ticket is one, not long past, and of this line: one from before the line was lost, or
// from before a clock was set back, lies beyond its end.
func (u *userState) counts(now int64, c charge) bool {
	return c.to > 0 && now <= c.to+graceUS && (c.to <= now || c.to <= u.lines[c.class])
}

// turn is how long c is behind others, if none of them comes. A bucket that is half full serves everyone: then those who
// should have come did not, for half the time that it takes to fill.
func (u *userState) turn(now int64, l limits, c charge) int64 {
	behind := u.lines[c.class]
	if u.counts(now, c) {
		behind = c.from
	}
	return min(behind, u.fullAt-l.user/2) - now
}

// turn is the same among all users of the project. A ticket is good for both.
func (p *projectState) turn(u *userState, now int64, l limits, c charge) int64 {
	if u.counts(now, c) {
		return 0
	}
	return min(p.lines[c.class], p.fullAt-l.project/2) - now
}

// queue gives c its place, or a later one when its turn has come and the bucket denies it; till is for how long, fair until
// when its user should leave the project's units to others. Users that the project denies are called one after the other.
// There is no place for those who do not come back.
func queue(u *userState, p *projectState, now, till, fair int64, byProject bool, c charge) ticket {
	line := &u.lines[c.class]
	t := ticket{from: now + max(till, fair)}
	if byProject && till > 0 && fair <= till && !u.counts(now, c) && c.patience > 0 {
		t.from = max(t.from, min(p.lines[c.class], t.from+lineUS))
		p.lines[c.class] = t.from + c.project
	}
	length := c.length
	if u.counts(now, c) {
		t.from = max(t.from, c.from)
		length = max(c.to-max(c.from, now), c.user)
	} else {
		t.from = max(t.from, min(*line, t.from+lineUS))
		if t.from-now > c.patience {
			return ticket{}
		}
	}
	t.to = t.from + length
	*line = max(*line, t.to)
	return t
}

// served moves the place of one who came early, and was admitted, to the present; so do those behind the last of the line.
func (u *userState) served(now int64, c charge) ticket {
	if !u.counts(now, c) || now >= c.from {
		return ticket{}
	}
	t := ticket{now, now + c.to - c.from}
	if u.lines[c.class] == c.to {
		u.lines[c.class] = t.to
	}
	return t
}

// seen counts the user as one of those that share the project, once an epoch. It reports whether it did.
func (p *projectState) seen(u *userState, now int64) bool {
	epoch := now / epochUS
	if u.epoch == epoch && p.epoch == epoch {
		return false
	}
	if p.epoch != epoch {
		if p.epoch != epoch-1 {
			p.users = 0
		}
		p.epoch, p.users, p.previous = epoch, 0, p.users
	}
	u.epoch = epoch
	p.users++
	return true
}

// activeUsers is how many share the project.
func (p *projectState) activeUsers() int64 { return max(p.users, p.previous, 1) }
