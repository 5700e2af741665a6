package gmailquota

import "time"

// Gmail's day turns at midnight Pacific time. That of standard time is used all year, 08:00 UTC: in summer it is an hour
// late, which needs no table of time zones.
const (
	dayUS      = 24 * 3600 * 1_000_000
	dayShiftUS = 8 * 3600 * 1_000_000
)

func dayOf(us int64) int64 { return (us - dayShiftUS) / dayUS }

// turnDay begins a new count when the day has turned.
func (p *projectState) turnDay(now int64) {
	if day := dayOf(now); p.day != day {
		p.day, p.used = day, 0
	}
}

// restOfDay is how many µs are left of the day, if its units are used up.
func (p *projectState) restOfDay(now int64, l limits) int64 {
	if l.day == 0 || p.used < l.day {
		return 0
	}
	return p.turnsIn(now)
}

func (p *projectState) turnsIn(now int64) int64 { return (p.day+1)*dayUS + dayShiftUS - now }

// use counts units; it returns signDay for those with which the day's are reached. A refund does not go back behind that, so it
// is said once.
func (p *projectState) use(units int64, l limits) int64 {
	before := p.used
	p.used += units
	if before < l.day && p.used >= l.day {
		return signDay
	}
	return 0
}

// nextDay is when Gmail's day turns.
func nextDay(now time.Time) time.Time {
	return time.UnixMicro((dayOf(now.UnixMicro())+1)*dayUS + dayShiftUS).UTC()
}

func (p *projectState) today(now int64, l limits) Day {
	return Day{Used: p.used, Limit: l.day, TurnsIn: time.Duration(p.turnsIn(now)) * time.Microsecond}
}
