package gmailquota

const (
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

// penalty is a pause after a refusal.
type penalty struct {
	end     int64 // admissions begin again; 0: there was none
	strikes int64 // episodes so far
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

// settle ends a pause that no refusal can have asked for.
func (s *penalty) settle(now int64) (repaired bool) {
	if s.end <= now+pauseMaxUS {
		return false
	}
	s.end = now
	return true
}

// hold lengthens a pause that another process counted; the bucket's emptiness until then it tells too, see recall.
func (s *penalty) hold(now, us int64) {
	if us > 0 {
		s.end = max(s.end, now+us)
	}
}

// inFlightCap grows back one call a minute after it was lowered.
func (u *userState) inFlightCap(now, configured int64) int64 {
	if u.cap == 0 {
		return configured
	}
	return min(configured, u.cap+max(now-u.capAt, 0)/capGrowUS)
}

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
