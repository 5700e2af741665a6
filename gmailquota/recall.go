package gmailquota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A state that was lost takes its debt along: calls reserved up to the longest horizon ahead still go out. The processes
// remember, each for itself, when a bucket would be full, and tell it to the state that took the lost one's place; so
// they do with what passed the local buckets while Redis was away. This is part of the core: script.lua does the same.

// A restart is a record that is no call. Its time is until when the user's debt of before is accounted for, so that
// several processes that remember it do not add it up, and what one of them knows beyond the others is still charged
// after these have reserved anew. Its id tells since when the state is there, in tenths of a second: a process that heard
// of the bucket later heard of this state, whatever became of the project's since. No charge has such an id: see newID.
const (
	restartSign = "!"
	restartUnit = 100_000 // µs
)

// restartUS is how much earlier than its time the record is dated, so that it lapses 2 s after: by then every process
// has asked Redis again, see breakerMost, and it must not be taken for a trace of the next outage.
const restartUS = leaseUS - 2_000_000

// told is what a process remembers of a bucket.
type told struct {
	born int64 // the project's birth when Redis last named the bucket; localBorn: what local buckets did
	us   int64 // µs from now until it is full; 0: nothing
}

// recall charges what t tells of a state that this one does not continue; missing says that there was none. It reports
// whether there was something.
func (u *userState) recall(p *projectState, now int64, l limits, missing bool, t told) bool {
	if t.us <= 0 || !missing && t.born == p.born {
		return false
	}
	full, since, more := now+t.us, p.born/restartUnit, int64(0)
	if i := u.restarted(); i >= 0 {
		r := u.records[i]
		since, _ = strconv.ParseInt(r.id[len(restartSign):], 10, 64)
		known := r.at + restartUS + l.user
		if full <= known || !missing && t.born >= since*restartUnit {
			return false
		}
		u.records = append(u.records[:i], u.records[i+1:]...)
		more = max(u.fullAt-known, 0)
	} else {
		full = max(full, u.fullAt)
	}
	u.restart(now, min(full-l.user, now+l.longest), since)
	u.fullAt = min(max(u.fullAt, full+more), u.reach(now, l.user, l.longest))
	return true
}

func (u *userState) restarted() int {
	return slices.IndexFunc(u.records, func(r record) bool { return strings.HasPrefix(r.id, restartSign) })
}

// restart notes until when the user's debt is accounted for, unless that would lapse at once.
func (u *userState) restart(now, at, since int64) {
	if at-restartUS+leaseUS > now {
		u.insert(record{fmt.Sprintf("%s%011d", restartSign, since), at - restartUS, 0})
	}
}

// recall is simpler for the project: a second's units are free in each minute that was not idle before, more than others
// can have reserved since this process asked last.
func (p *projectState) recall(now int64, l limits, missing bool, t told) bool {
	if t.us <= 0 || !missing && t.born == p.born {
		return false
	}
	p.fullAt = min(max(p.fullAt, now+t.us), p.reach(now, l.project, l.longest))
	return true
}
