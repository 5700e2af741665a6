package configs

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The guard's arithmetic, as far as a setting can contradict it. It is kept here, and not imported, because configs
// is a leaf; the guard checks the same once more.
const (
	// dearestPrice is the price of users.watch and of sending: the dearest calls of both price lists, in units.
	dearestPrice = 100
	// longestReservation is how far ahead the realtime and maintenance classes may reserve.
	longestReservation = 30 * time.Second
	// maxUnits keeps the guard's products of units and microseconds within 2^53.
	maxUnits = 1_000_000_000
	// projectBurstShare: by default a project may use this part of its minute at once.
	projectBurstShare = 60
)

// bucket is what a limit comes to: it holds capacity units and gains refill units a minute.
type bucket struct{ capacity, refill int64 }

// refillFor is the R that keeps every 60-second window within limit, however Gmail cuts its minute: up to
// capacity + R x (1 + jitter/60 s) units can arrive in one.
func refillFor(limit, capacity int64, jitter time.Duration) int64 {
	return int64(float64(limit-capacity) / stretch(jitter))
}

// stretch is by how much a minute of admissions can be longer than the minute of arrivals that it falls into.
func stretch(jitter time.Duration) float64 { return 1 + jitter.Seconds()/60 }

func (g Guard) userBucket() bucket {
	b := bucket{capacity: g.UserBurst, refill: g.PerUserRefillUnitsPerMinute}
	if g.PerUserCapacityUnits != 0 {
		b.capacity = g.PerUserCapacityUnits
	}
	if b.refill == 0 {
		b.refill = refillFor(g.UserLimit, b.capacity, g.Jitter)
	}
	return b
}

func (g Guard) projectBucket() bucket {
	return bucket{g.ProjectBurst, refillFor(g.ProjectLimit, g.ProjectBurst, g.Jitter)}
}

// lifetime is the longest that the bucket's state matters: in debt by the longest reservation, then until it is full.
func (b bucket) lifetime() time.Duration {
	return longestReservation + time.Duration(float64(b.capacity)/float64(b.refill)*float64(time.Minute))
}

func (c Config) checkGuard(v *validator) {
	g := c.Guard
	dearest := int64(dearestPrice)
	for _, method := range slices.Sorted(maps.Keys(g.Prices)) {
		v.number("guard.prices."+method, g.Prices[method], 1, maxUnits)
		dearest = max(dearest, g.Prices[method])
	}
	v.oneOf("guard.priceList", g.PriceList, "2026-05", "legacy")
	v.matches("guard.project", g.Project, bucketName, "letters, digits and . _ : -, at most 100")
	v.number("guard.userLimit", g.UserLimit, dearest+1, maxUnits)
	v.number("guard.projectLimit", g.ProjectLimit, dearest+1, maxUnits)
	checkBurst(v, "guard.userBurst", g.UserBurst, dearest, "guard.userLimit", g.UserLimit)
	checkBurst(v, "guard.projectBurst", g.ProjectBurst, dearest, "guard.projectLimit", g.ProjectLimit)
	if g.PerUserCapacityUnits != 0 {
		most := int64(maxUnits)
		if g.PerUserRefillUnitsPerMinute == 0 {
			most = g.UserLimit - 1 // the refill follows from what the capacity leaves of the limit
		}
		v.number("guard.perUserCapacityUnits", g.PerUserCapacityUnits, dearest, most)
	}
	if g.PerUserRefillUnitsPerMinute != 0 {
		v.number("guard.perUserRefillUnitsPerMinute", g.PerUserRefillUnitsPerMinute, 1, maxUnits)
	}
	v.duration("guard.jitter", g.Jitter, 0, 10*time.Second)
	v.number("guard.inFlight", int64(g.InFlight), 1, 100)
	v.number("guard.workers", int64(g.Workers), 1, 10_000)
	v.duration("guard.maxWait", g.MaxWait, time.Millisecond, longestReservation)
	v.duration("guard.keyTTL", g.KeyTTL, time.Second, 24*time.Hour)
	if v.err == nil {
		checkLifetime(v, "user", g.userBucket(), g.KeyTTL)
		checkLifetime(v, "project", g.projectBucket(), g.KeyTTL)
	}
	if g.Workers > 1 && c.Redis.URL == Embedded {
		v.fail("redis.url", c.Redis.URL, fmt.Sprintf("guard.workers is %d and each would have buckets of its own", g.Workers), "redis://… or rediss://…, the same for all workers")
	}
}

func checkBurst(v *validator, key string, burst, dearest int64, limitKey string, limit int64) {
	if burst < dearest || burst >= limit {
		v.fail(key, fmt.Sprint(burst), "", fmt.Sprintf("at least %d, the dearest price in units (a dearer call could never be made), and less than %s, which is %d", dearest, limitKey, limit))
	}
}

func checkLifetime(v *validator, owner string, b bucket, keyTTL time.Duration) {
	if need := b.lifetime(); keyTTL <= need {
		v.fail("guard.keyTTL", keyTTL.String(), fmt.Sprintf(
			"too short, the %s's bucket would refill by expiring: it can be in debt for %s (the longest reservation) and then needs %s to fill (%d units at %d a minute)",
			owner, longestReservation, (need-longestReservation).Round(time.Millisecond), b.capacity, b.refill),
			"more than "+need.Round(time.Millisecond).String())
	}
}

// Warnings tells what is allowed but will hurt, one line each. They are meant to be logged once, at start.
func (c Config) Warnings() []string {
	c = c.Resolve()
	var out []string
	g, b := c.Guard, c.Guard.userBucket()
	if worst := float64(b.capacity) + float64(b.refill)*stretch(g.Jitter); worst > float64(g.UserLimit) {
		out = append(out, fmt.Sprintf(
			"guard: capacity %d + refill %d a minute x (1 + jitter %s / 1m) = %.0f units in the worst minute, above guard.userLimit %d: Gmail may refuse calls; a refill of %d would keep the limit",
			b.capacity, b.refill, g.Jitter, worst, g.UserLimit, max(0, refillFor(g.UserLimit, b.capacity, g.Jitter))))
	}
	if !g.Enabled {
		out = append(out, "guard.enabled is false: no call is held back, and Gmail will refuse calls above its limits")
	}
	if g.Enabled && g.FailOpen && !g.LocalFallback {
		out = append(out, "guard.failOpen without guard.localFallback: while Redis is away nothing holds calls back")
	}
	if c.Push.Listen != "" && c.PubSub.Topic == "" {
		out = append(out, "push.listen without pubsub.topic: Gmail is not asked to push, changes are found by polling")
	}
	return out
}
