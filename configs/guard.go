package configs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// The guard's arithmetic, as far as a setting can contradict it. It is kept here, and not imported, because configs
// is a leaf; the guard checks the same once more.
const (
	// dearestPrice is the price of users.watch and of sending: the dearest calls of both price lists, in units.
	dearestPrice = 100
	// longestReservation is how far ahead the realtime and maintenance classes may reserve.
	longestReservation = 30 * time.Second
	// backfillReservation is how far ahead the backfill class may reserve.
	backfillReservation = 410 * time.Millisecond
	// leastRest is what a burst must leave of its limit, units a minute: with any jitter that is allowed a refill of 1.
	leastRest = 2
	// maxJitter is the most that guard.jitter may be.
	maxJitter = 10 * time.Second
	// maxUnits keeps the guard's products of units and microseconds within 2^53.
	maxUnits = 1_000_000_000
	// maxDailyUnits is the guard's own bound.
	maxDailyUnits = 1_000_000_000_000
	// projectBurstShare: by default a project may use this part of its minute at once.
	projectBurstShare = 60
)

// bucket is what a limit comes to: it holds capacity units and gains refill units a minute.
type bucket struct{ capacity, refill int64 }

// refillFor is the largest R with which no 60-second window passes limit, however Gmail cuts its minute: up to
// capacity + R x (1 + jitter/60 s) units can arrive in one. 0 or less: the capacity leaves nothing of the limit.
func refillFor(limit, capacity int64, jitter time.Duration) int64 {
	minute := time.Minute.Microseconds()
	return (limit - capacity) * minute / (minute + jitter.Microseconds())
}

// userBucket and projectBucket are for one of n workers that share the limits.
func (g Guard) userBucket(n int64) bucket {
	b := bucket{capacity: g.UserBurst, refill: g.PerUserRefillUnitsPerMinute / n}
	if g.PerUserCapacityUnits != 0 {
		b.capacity = g.PerUserCapacityUnits
	}
	if g.PerUserRefillUnitsPerMinute == 0 {
		b.refill = refillFor(g.UserLimit/n, b.capacity, g.Jitter)
	}
	return b
}

// projectBucket counts the backfill class's reservations as jitter: a call that waits for its user's bucket is charged
// to the project at once.
func (g Guard) projectBucket(n int64) bucket {
	capacity := max(g.ProjectBurst/n, g.userBucket(n).capacity)
	return bucket{capacity, refillFor(g.ProjectLimit/n, capacity, g.Jitter+backfillReservation)}
}

// lifetime is the longest that the bucket's state matters: in debt by the longest reservation, then until it is full.
func (b bucket) lifetime() time.Duration {
	return longestReservation + time.Duration(b.capacity*time.Minute.Microseconds()/b.refill+1)*time.Microsecond
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
	v.number("guard.userLimit", g.UserLimit, dearest+leastRest, maxUnits)
	v.number("guard.projectLimit", g.ProjectLimit, dearest+leastRest, maxUnits)
	checkUserBurst(v, g, dearest)
	if g.PerUserCapacityUnits != 0 {
		most := int64(maxUnits)
		if g.PerUserRefillUnitsPerMinute == 0 {
			most = g.UserLimit - leastRest // the refill follows from what the capacity leaves of the limit
		}
		v.number("guard.perUserCapacityUnits", g.PerUserCapacityUnits, dearest, most)
	}
	checkProjectBurst(v, g, dearest)
	if g.PerUserRefillUnitsPerMinute != 0 {
		v.number("guard.perUserRefillUnitsPerMinute", g.PerUserRefillUnitsPerMinute, 1, maxUnits)
	}
	v.duration("guard.jitter", g.Jitter, 0, maxJitter)
	v.number("guard.inFlight", int64(g.InFlight), 1, 100)
	checkShares(v, g)
	v.number("guard.dailyLimit", g.DailyLimit, 0, maxDailyUnits)
	v.number("guard.workers", int64(g.Workers), 1, 10_000)
	v.duration("guard.maxWait", g.MaxWait, time.Millisecond, longestReservation)
	v.duration("guard.keyTTL", g.KeyTTL, time.Second, 24*time.Hour)
	if v.err == nil {
		checkLifetime(v, "user", g.userBucket(1), g.KeyTTL)
		checkLifetime(v, "project", g.projectBucket(1), g.KeyTTL)
	}
	if n := int64(g.Workers); v.err == nil && g.LocalFallback && min(g.userBucket(n).refill, g.projectBucket(n).refill) < 1 {
		v.fail("guard.workers", strconv.FormatInt(n, 10), "while Redis is away each worker has its share of the limits, and this share would not hold one burst",
			"fewer workers, higher limits, or guard.localFallback: false")
	}
	if g.Workers > 1 && c.Redis.URL == Embedded {
		v.fail("redis.url", c.Redis.URL, fmt.Sprintf("guard.workers is %d and each would have buckets of its own", g.Workers), "redis://… or rediss://…, the same for all workers")
	}
}

// checkShares: what is guaranteed to all classes together cannot be more than there is.
func checkShares(v *validator, g Guard) {
	v.number("guard.shareRealtime", int64(g.ShareRealtime), 1, 100)
	v.number("guard.shareBackfill", int64(g.ShareBackfill), 1, 100)
	v.number("guard.shareMaintenance", int64(g.ShareMaintenance), 1, 100)
	if sum := g.ShareRealtime + g.ShareBackfill + g.ShareMaintenance; v.err == nil && sum > 100 {
		v.fail("guard.shareBackfill", strconv.Itoa(g.ShareBackfill), fmt.Sprintf("the three shares come to %d %%", sum),
			fmt.Sprintf("1 to %d beside the two others, or lower ones of them", max(1, 100-g.ShareRealtime-g.ShareMaintenance)))
	}
}

// checkProjectBurst: what one user may have at once must fit into the project's bucket.
func checkProjectBurst(v *validator, g Guard, dearest int64) {
	least := max(dearest, g.userBucket(1).capacity)
	if most := g.ProjectLimit - leastRest; g.ProjectBurst < least || g.ProjectBurst > most {
		v.fail("guard.projectBurst", strconv.FormatInt(g.ProjectBurst, 10), "",
			fmt.Sprintf("%d, what one user may have at once, to %d, which leaves a refill out of guard.projectLimit", least, most))
	}
}

func checkUserBurst(v *validator, g Guard, dearest int64) {
	if most := g.UserLimit - leastRest; g.UserBurst < dearest || g.UserBurst > most {
		v.fail("guard.userBurst", strconv.FormatInt(g.UserBurst, 10), "",
			fmt.Sprintf("%d, the dearest price (a dearer call could never be made), to %d, which leaves a refill out of guard.userLimit", dearest, most))
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
	g, b := c.Guard, c.Guard.userBucket(1)
	if worst := float64(b.capacity) + float64(b.refill)*(1+g.Jitter.Minutes()); worst > float64(g.UserLimit) {
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
