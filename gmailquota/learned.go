package gmailquota

// What Gmail gives may be less than the configured limit: a project of another age, other programs on the same account.
// Refusals without a stated time teach it, and time unlearns it. The rate only ever falls below the configured one.
//
// It moves as TCP's does (RFC 9438, CUBIC): down by a step at a refusal; up fast until a little below where Gmail refused,
// slowly past that point, and fast again beyond it, as Gmail then gives more than it did. Simulated with a true limit of
// 50 to 90 % under the three metering modes: a refusal in 85 to 300 s, and 0.95 to 1.00 of the true limit used (fixed
// minutes at 90 %: 0.87, as one that is full is refused to its end); the configured rate eight minutes after its return.
const (
	fullRate  = 1000 // ‰ of the configured rate
	leastRate = 10   // a limit below 1 % of the configured one is a wrong configuration
	// The first refusal takes 15 % off, each further one 8 %.
	firstCut, nextCut = 850, 920
	// Up to 97 % of where Gmail refused, and past 103 %, the rate grows by 150 ‰ of the configured one a minute; between
	// them by 6 ‰.
	nearFrom, nearTo   = 970, 1030
	growFast, growSlow = 150, 6
)

// learned is the rate that Gmail seems to give. Zero is the configured one.
type learned struct {
	rate    int64 // ‰ when it was last refused, after the cut; 0: nothing was refused
	rateAt  int64 // when it began to grow again
	ceiling int64 // ‰ at which Gmail refused
}

// permille is the rate at a time.
func (l *learned) permille(now int64) int64 {
	if l.rate == 0 {
		return fullRate
	}
	rate, left := l.rate, max(now-l.rateAt, 0)
	rate, left = grow(rate, l.ceiling*nearFrom/1000, growFast, left)
	rate, left = grow(rate, l.ceiling*nearTo/1000, growSlow, left)
	rate, _ = grow(rate, fullRate, growFast, left)
	return min(rate, fullRate)
}

// grow moves rate up to a bound by so many ‰ a minute; it returns what is left of the time.
func grow(rate, bound, perMinute, left int64) (int64, int64) {
	if rate >= bound {
		return rate, left
	}
	if need := (bound - rate) * minuteUS / perMinute; left >= need {
		return bound, left - need
	}
	return rate + left*perMinute/minuteUS, 0
}

// slowest is the lowest rate since a bucket's debt began.
func (l *learned) slowest() int64 {
	if l.rate == 0 {
		return fullRate
	}
	return l.rate
}

// cut lowers the rate after a refusal. It grows again from the end of the pause.
func (l *learned) cut(now, end int64) {
	rate, step := l.permille(now), int64(nextCut)
	if l.rate == 0 {
		step = firstCut
	}
	*l = learned{max(rate*step/1000, leastRate), end, rate}
}

// forgotten is when the rate is the configured one again.
func (l *learned) forgotten() int64 {
	if l.rate == 0 {
		return 0
	}
	near, far := l.ceiling*nearFrom/1000, l.ceiling*nearTo/1000
	t := l.rateAt
	for _, s := range [...][3]int64{{l.rate, near, growFast}, {max(l.rate, near), min(far, fullRate), growSlow}, {max(l.rate, far), fullRate, growFast}} {
		t += max((s[1]-s[0])*minuteUS/s[2], 0)
	}
	return t
}

// scaled is what a price costs of the refill at a rate, in µs.
func scaled(cost, permille int64) int64 {
	if permille == fullRate {
		return cost
	}
	return (cost*fullRate + permille - 1) / permille
}
