package gmailquota

import (
	"math"
	"time"
)

// Plan is what a user's limit and burst come to; Explain computes it.
type Plan struct {
	Limit  int64         // units a minute
	Burst  int64         // units that may go at once after a pause
	Jitter time.Duration // between admission and arrival, at most
	Refill int64         // units a minute that flow without end
	Use    float64       // Refill as a part of Limit
	// Most is how many units can reach Gmail in any 60 s. It is never above Limit.
	Most int64
	// FullIn is the time from an empty bucket to a full one if nobody asks. KeyTTL is what Config.KeyTTL must exceed.
	FullIn time.Duration
	KeyTTL time.Duration
	// SmallestBucket is the smallest bucket with which Gmail could meter and refuse nothing, were it refilled each second with
	// a 60th of Limit.
	SmallestBucket int64
}

// Explain computes what a limit (units a minute), a burst (units) and a jitter come to for one user, with everything else
// as in DefaultConfig. The error is a *ConfigError: a burst must hold the dearest call, 100 units, and leave a refill.
func Explain(limit, burst int64, jitter time.Duration) (Plan, error) {
	c := DefaultConfig()
	c.UserLimit, c.UserBurst, c.Jitter, c.KeyTTL = limit, burst, jitter, maxKeyTTL
	c.ProjectLimit = maxUnits // it is not what is asked for
	p, err := c.plan()
	if err != nil {
		return Plan{}, err
	}
	perSecond := float64(p.user.refill) / 60
	return Plan{
		Limit: limit, Burst: burst, Jitter: jitter, Refill: p.user.refill, Use: float64(p.user.refill) / float64(limit),
		Most:   burst + int64(perSecond*(time.Minute+jitter).Seconds()),
		FullIn: time.Duration(p.user.cap) * time.Microsecond, KeyTTL: time.Duration(p.user.cap+p.longest) * time.Microsecond,
		SmallestBucket: burst + int64(math.Ceil(perSecond*(time.Second+jitter).Seconds())),
	}, nil
}

// Time is how long so many calls of one price take, from an empty bucket on.
func (p Plan) Time(calls, price int64) time.Duration {
	return time.Duration(float64(calls) * float64(price) / float64(p.Refill) * float64(time.Minute))
}

// farUS is a horizon beyond any wait, years, with which sums stay small.
const farUS = 1 << 50

// Rehearsal is one user's bucket on a clock of the caller's own. It decides as a Guard with the same Config does, but
// nobody else asks, Redis is not needed, and nothing is sent: it is for simulations. Not safe for concurrent use.
type Rehearsal struct {
	limits  limits
	bucket  bucket
	user    userState
	project projectState
}

// Rehearse makes a Rehearsal whose bucket is full at the time 0. The error is a *ConfigError.
func Rehearse(cfg Config) (*Rehearsal, error) {
	p, err := cfg.plan()
	if err != nil {
		return nil, err
	}
	p.day = 0 // this is about minutes
	return &Rehearsal{limits: p.limits(), bucket: p.user}, nil
}

// Admit charges a call that is asked for at now, since the time 0, and returns how long it must wait, however long that
// is. now must not decrease. Units must be within the bucket's capacity.
func (r *Rehearsal) Admit(now time.Duration, units int64) time.Duration {
	c := charge{id: "~rehearsal..", calls: 1, share: 100, user: r.bucket.cost(units), near: farUS, far: farUS}
	d := decide(&r.user, &r.project, now.Microseconds(), r.limits, c)
	r.user.release(c.id) // what is under way is not this clock's matter
	r.user.records = r.user.records[:0]
	return time.Duration(d.wait) * time.Microsecond
}
