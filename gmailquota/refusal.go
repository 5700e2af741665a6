package gmailquota

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Scope says whom Gmail's refusal stops.
type Scope uint8

const (
	// ScopeUser stops the calls of one user.
	ScopeUser Scope = iota
	// ScopeProject stops the calls of all users.
	ScopeProject
	// ScopeConcurrency lowers how many calls of the user may be under way. The units go on.
	ScopeConcurrency
)

func (s Scope) String() string { return [...]string{"user", "project", "concurrency"}[s] }

// Refusal is Gmail's "too much".
type Refusal struct {
	Scope  Scope
	Until  time.Time // when to come back; zero if Gmail named no time
	Reason string    // Gmail's reason, "rateLimitExceeded"; may be empty
}

// maxStated bounds what Gmail may state: a wrong instant must not lock a user out for longer.
const maxStated = pauseMaxUS * time.Microsecond

// dailyLeast is the shortest pause after the day's limit. The day turns at midnight Pacific time, and the count may
// lag behind it.
const dailyLeast = time.Hour

// body is the part of Gmail's error answer that tells what it is.
type body struct {
	Error struct {
		Message string
		Status  string
		Errors  []struct{ Message, Domain, Reason string }
		Details []struct {
			Reason   string
			Metadata map[string]string
		}
	}
}

// ParseRefusal tells whether an answer of Gmail is a throttle, and until when. Gmail throttles with 429 and with 403;
// only the reason tells such a 403 from a missing permission, and a 403 that cannot be read is no throttle. The time to
// come back is the latest of the Retry-After header (seconds or an HTTP date) and of the RFC 3339 instants in the
// message.
func ParseRefusal(status int, header http.Header, data []byte, now time.Time) (Refusal, bool) {
	if status != http.StatusTooManyRequests && status != http.StatusForbidden {
		return Refusal{}, false
	}
	var b body
	_ = json.Unmarshal(data, &b) // HTML, nothing, or half an answer: what could be read counts
	reason := b.reason()
	text := b.text()
	r := Refusal{Reason: reason, Until: latest(stated(header.Get("Retry-After"), now), instant(text))}
	switch {
	case reason == "dailyLimitExceeded":
		r.Scope = ScopeProject
		r.Until = latest(r.Until, latest(nextDay(now), now.Add(dailyLeast)))
	case status == http.StatusForbidden && !throttleReason[reason]:
		return Refusal{}, false
	case strings.Contains(text, "concurrent"):
		r.Scope = ScopeConcurrency
	case forProject(reason, text):
		r.Scope = ScopeProject
	}
	if !r.Until.After(now) {
		r.Until = time.Time{}
	}
	return r, true
}

// throttleReason are the reasons with which a 403 is a throttle.
var throttleReason = map[string]bool{
	"rateLimitExceeded": true, "userRateLimitExceeded": true, "quotaExceeded": true, "RATE_LIMIT_EXCEEDED": true,
	"RESOURCE_EXHAUSTED": true, "concurrentLimitExceeded": true,
}

// identifier is what reasons look like; anything else is not repeated to logs.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

func (b *body) reason() string {
	if r := b.firstReason(); identifier.MatchString(r) {
		return r
	}
	return ""
}

// firstReason prefers the classic list, then the newer details, then the status.
func (b *body) firstReason() string {
	for _, e := range b.Error.Errors {
		if e.Reason != "" {
			return e.Reason
		}
	}
	for _, d := range b.Error.Details {
		if d.Reason != "" {
			return d.Reason
		}
	}
	return b.Error.Status
}

// text is every message and the limit's name, where they say what they are about.
func (b *body) text() string {
	parts := []string{b.Error.Message}
	for _, e := range b.Error.Errors {
		parts = append(parts, e.Message)
	}
	for _, d := range b.Error.Details {
		parts = append(parts, d.Metadata["quota_limit"])
	}
	return strings.ToLower(strings.Join(parts, " "))
}

// forProject: the user's limit is also reported as rateLimitExceeded, so only a text that speaks of the project, or of
// a minute without "per user", stops everybody.
func forProject(reason, text string) bool {
	if reason == "userRateLimitExceeded" || strings.Contains(text, "per user") || strings.Contains(text, "peruser") {
		return false
	}
	return strings.Contains(text, "queries per minute") || strings.Contains(text, "perproject") ||
		strings.Contains(text, "per project")
}

// stated reads a Retry-After header.
func stated(value string, now time.Time) time.Time {
	value = strings.TrimSpace(value)
	if s, err := strconv.ParseInt(value, 10, 64); err == nil {
		return now.Add(time.Duration(min(max(s, 0), int64(maxStated/time.Second))) * time.Second)
	}
	if t, err := http.ParseTime(value); err == nil {
		return t
	}
	return instant(value)
}

// rfc3339 matches in lower case, as text is.
var rfc3339 = regexp.MustCompile(`\d{4}-\d\d-\d\dt\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)`)

// instant is the latest RFC 3339 instant in a text.
func instant(text string) time.Time {
	var found time.Time
	for _, s := range rfc3339.FindAllString(strings.ToLower(text), -1) {
		if t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s)); err == nil {
			found = latest(found, t)
		}
	}
	return found
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Penalize tells all processes that Gmail refused a call. A user's (or the project's) calls then wait until the stated
// time, at most 24 h, and at least for a pause that doubles with each episode in a row, 1 s to 5 min. Refusals during a
// pause belong to its episode: only a later stated time moves the end. After it the bucket is empty, so that calls come
// back one by one. A refusal that states no time also lowers the rate, see BucketState.Effective. A concurrency refusal
// halves the in-flight cap once an episode, and pauses only if it states a time; each minute gives one back. Use Grant.Refused where there is a grant.
//
// Without Redis the refusal counts in this process, and Redis is told with the account's next decision. The end of ctx
// does not stop this: a refusal must not be lost. It takes at most Config.RedisTimeout.
func (g *Guard) Penalize(ctx context.Context, account string, r Refusal) error {
	return g.penalize(ctx, account, r, 0)
}

// penalize is Penalize for a call that was admitted at a µs of Redis' clock; 0: not known.
func (g *Guard) penalize(ctx context.Context, account string, r Refusal, at int64) error {
	if account == "" {
		return ErrNoAccount
	}
	var us int64
	if left := r.Until.Sub(g.now()); !r.Until.IsZero() && left > 0 {
		us = min(left, maxStated).Microseconds()
	}
	answer, err := g.run(context.WithoutCancel(ctx), "penalize", []string{g.projectKey, g.userKey(account)}, r.Scope.String(), us, at)
	e := Event{Kind: Refused, Bucket: BucketPenaltyUser, Reason: r.Reason, Wait: time.Duration(us) * time.Microsecond, Err: err}
	switch r.Scope {
	case ScopeProject:
		e.Bucket = BucketPenaltyProject
	case ScopeConcurrency:
		e.Bucket = BucketInFlight
	}
	if err != nil {
		g.local.penalize(account, refusal{scope: r.Scope, stated: us})
		g.observe(e)
		return &UnavailableError{Wait: g.breaker.left(), Err: err}
	}
	if len(answer) == 1 {
		e.Wait = time.Duration(answer[0]) * time.Microsecond
	}
	g.observe(e)
	return nil
}
