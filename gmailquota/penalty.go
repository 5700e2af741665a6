package gmailquota

const (
	// The first refusal without a stated time pauses for 1 s, each further episode for twice as long, up to 5 min.
	strikeBaseUS = 1_000_000
	strikeMaxUS  = 300_000_000
	// A refusal later than 10 s after a pause begins with 1 s again: so long Gmail gave what was asked, and what is left to
	// do the rate does, see learned.
	strikeMemoryUS = 10_000_000
	// No pause is longer than a day: Gmail's own longest is the rest of one. A later end is a clock that was set back.
	pauseMaxUS = 24 * 3600 * 1_000_000
	// After a concurrency refusal the cap is halved; refusals within 5 s are the same episode. Each minute gives one
	// call back.
	capEpisodeUS = 5_000_000
	capGrowUS    = minuteUS
	// capMemoryUS is how long a lowered cap outlives its episode.
	capMemoryUS = 10 * minuteUS
)

// penalty is what refusals do to a bucket: a pause, and less of the rate.
type penalty struct {
	end     int64 // admissions begin again; 0: there was none
	strikes int64 // episodes in a row
	learned
}

// refusal is what Gmail answered to a call.
type refusal struct {
	scope    Scope
	stated   int64 // µs from now until Gmail's time to come back; 0: it named none
	admitted int64 // when the call was; 0: not known
}

// strike starts a pause after a refusal, or, within one, moves its end to a later stated time only. A call that was
// admitted before a pause belongs to its episode, however late its answer comes. It returns the bucket's new fullAt:
// nothing is admitted before the end, and the bucket is empty then, so that calls come back one by one.
func (s *penalty) strike(now, capUS, fullAt int64, r refusal) int64 {
	stated := r.stated
	if now < s.end || 0 < r.admitted && r.admitted < s.end {
		if stated == 0 || now+stated <= s.end {
			return fullAt
		}
		s.end = now + stated
	} else {
		pause := int64(strikeMaxUS)
		if s.strikes < 9 { // 2^9 s is above the longest pause
			pause = min(int64(strikeBaseUS)<<s.strikes, strikeMaxUS)
			s.strikes++
		}
		s.end = now + max(pause, stated)
		if stated == 0 {
			s.cut(now, s.end)
		}
	}
	return max(fullAt, s.end+capUS)
}

// crowd halves the in-flight cap after a concurrency refusal.
func (u *userState) crowd(now, configured, admitted int64) {
	if u.cap > 0 && (now-u.capAt < capEpisodeUS || 0 < admitted && admitted < u.capAt) {
		return
	}
	u.cap = max(u.inFlightCap(now, configured)/2, 1)
	u.capAt = now
}

// settle ends a pause that no refusal can have asked for, and forgets what is over.
func (s *penalty) settle(now int64) (repaired bool) {
	if s.end > now+pauseMaxUS {
		s.end, repaired = now, true
	}
	if s.rateAt > max(now, s.end) {
		s.rateAt, repaired = now, true
	}
	if now-s.end >= strikeMemoryUS {
		s.end, s.strikes = 0, 0
	}
	if s.forgotten() <= now {
		s.learned = learned{}
	}
	return repaired
}

// until is when nothing is left to remember.
func (s *penalty) until() int64 {
	if s.end == 0 {
		return s.forgotten()
	}
	return max(s.end+strikeMemoryUS, s.forgotten())
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

// penalize applies a refusal.
func penalize(u *userState, p *projectState, now int64, l limits, r refusal) {
	if r.scope == ScopeProject {
		p.fullAt = p.strike(now, l.project, p.fullAt, r)
		return
	}
	if r.scope == ScopeConcurrency {
		u.crowd(now, l.inFlight, r.admitted)
	}
	if r.scope == ScopeUser || r.stated > 0 {
		u.fullAt = u.strike(now, l.user, u.fullAt, r)
	}
}
