package gmailquota_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// gmailError is an error body as Gmail makes it; reason "" leaves errors empty.
func gmailError(code int, status, reason, message string) string {
	errs := ""
	if reason != "" {
		errs = fmt.Sprintf(`{"message":%q,"domain":"usageLimits","reason":%q}`, message, reason)
	}
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"errors":[%s]}}`, code, message, status, errs)
}

const (
	perUser    = "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service 'gmail.googleapis.com'"
	perProject = "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'gmail.googleapis.com'"
	in15       = "User-rate limit exceeded.  Retry after 2026-11-29T12:15:00.123Z"
)

// Only the reason tells a throttling 403 from a missing permission.
// GAM-team/got-your-back#309, mxngls/gmail-cleaner#5, vitalif/grive2#169
func TestWhichAnswersAreThrottles(t *testing.T) {
	user, project, concurrency := gmailquota.ScopeUser, gmailquota.ScopeProject, gmailquota.ScopeConcurrency
	tests := []struct {
		name, body string
		status     int
		throttle   bool
		scope      gmailquota.Scope
		reason     string
	}{
		{"403 user's minute, reported as rateLimitExceeded", gmailError(403, "PERMISSION_DENIED", "rateLimitExceeded", perUser), 403, true, user, "rateLimitExceeded"},
		{"403 project's minute", gmailError(403, "PERMISSION_DENIED", "rateLimitExceeded", perProject), 403, true, project, "rateLimitExceeded"},
		{"403 userRateLimitExceeded", gmailError(403, "", "userRateLimitExceeded", "User Rate Limit Exceeded"), 403, true, user, "userRateLimitExceeded"},
		{"403 quotaExceeded", gmailError(403, "", "quotaExceeded", "Quota exceeded"), 403, true, user, "quotaExceeded"},
		{"403 dailyLimitExceeded", gmailError(403, "", "dailyLimitExceeded", "Daily Limit Exceeded"), 403, true, project, "dailyLimitExceeded"},
		{"429 without reasons", gmailError(429, "RESOURCE_EXHAUSTED", "", "Resource has been exhausted"), 429, true, user, "RESOURCE_EXHAUSTED"},
		{"429 project's minute", gmailError(429, "RESOURCE_EXHAUSTED", "rateLimitExceeded", perProject), 429, true, project, "rateLimitExceeded"},
		{"429 with details only", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"reason":"RATE_LIMIT_EXCEEDED","metadata":{"quota_limit":"defaultPerMinutePerProject"}}]}}`, 429, true, project, "RATE_LIMIT_EXCEEDED"},
		{"429 too many at once", gmailError(429, "RESOURCE_EXHAUSTED", "rateLimitExceeded", "Too many concurrent requests for user."), 429, true, concurrency, "rateLimitExceeded"},
		{"429 HTML", "<html>Too many requests</html>", 429, true, user, ""},
		{"429 empty", "", 429, true, user, ""},
		{"429 cut", `{"error":{"code":429,"mess`, 429, true, user, ""},
		{"403 insufficientPermissions", gmailError(403, "PERMISSION_DENIED", "insufficientPermissions", "Insufficient Permission"), 403, false, user, ""},
		{"403 forbidden", gmailError(403, "", "forbidden", "Forbidden"), 403, false, user, ""},
		{"403 accessNotConfigured", gmailError(403, "", "accessNotConfigured", "Gmail API has not been used in project 1 before"), 403, false, user, ""},
		{"403 domainPolicy", gmailError(403, "", "domainPolicy", "The domain administrators have disabled Gmail apps."), 403, false, user, ""},
		{"403 HTML", "<html>403</html>", 403, false, user, ""},
		{"403 empty", "", 403, false, user, ""},
		{"401", gmailError(401, "UNAUTHENTICATED", "authError", "Invalid Credentials"), 401, false, user, ""},
		{"404", gmailError(404, "NOT_FOUND", "notFound", "Not Found"), 404, false, user, ""},
		{"503", gmailError(503, "UNAVAILABLE", "backendError", "Backend Error"), 503, false, user, ""},
		{"200", "{}", 200, false, user, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := gmailquota.ParseRefusal(tt.status, http.Header{}, []byte(tt.body), noon)
			if ok != tt.throttle || r.Scope != tt.scope || r.Reason != tt.reason {
				t.Errorf("throttle %v, %v, reason %q; want %v, %v, %q", ok, r.Scope, r.Reason, tt.throttle, tt.scope, tt.reason)
			}
		})
	}
}

// The time to come back may be in the header or only in the message.
// rowboatlabs/rowboat#926, twentyhq/twenty#17850, taers232c/GAMADV-XTD3#337
func TestWhenGmailSaysToComeBack(t *testing.T) {
	quarter := noon.Add(15*time.Minute + 123*time.Millisecond)
	tests := []struct {
		name, header, message string
		want                  time.Time
	}{
		{"nowhere", "", "User-rate limit exceeded.", time.Time{}},
		{"seconds", "30", "", noon.Add(30 * time.Second)},
		{"seconds with blanks", " 30 ", "", noon.Add(30 * time.Second)},
		{"HTTP date", noon.Add(time.Minute).Format(http.TimeFormat), "", noon.Add(time.Minute)},
		{"instant in the message", "", in15, quarter},
		{"instant with an offset", "", "Retry after 2026-11-29T13:15:00.123+01:00", quarter},
		{"instant without fraction", "", "(Retry after 2026-11-29T12:15:00Z)", noon.Add(15 * time.Minute)},
		{"the later of both: the message", "5", in15, quarter},
		{"the later of both: the header", "3600", in15, noon.Add(time.Hour)},
		{"zero seconds", "0", "", time.Time{}},
		{"negative seconds", "-5", "", time.Time{}},
		{"in the past", "", "Retry after 2025-01-01T00:00:00.000Z", time.Time{}},
		{"nonsense", "soon", "Retry after 2026-99-99T00:00:00Z", time.Time{}},
		{"beyond any number", "99999999999", "", noon.Add(24 * time.Hour)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.header != "" {
				h.Set("Retry-After", tt.header)
			}
			body := gmailError(429, "RESOURCE_EXHAUSTED", "rateLimitExceeded", tt.message)
			r, ok := gmailquota.ParseRefusal(429, h, []byte(body), noon)
			if !ok || !r.Until.Equal(tt.want) {
				t.Errorf("until %v (%v); want %v", r.Until, ok, tt.want)
			}
		})
	}
}

// A project over for the day waits for hours: until the day turns in California.
func TestTheDaysLimitParksTheProjectUntilTheDayTurns(t *testing.T) {
	body := []byte(gmailError(403, "", "dailyLimitExceeded", "Daily Limit Exceeded"))
	for at, want := range map[string]string{
		"2026-11-29T12:00:00Z": "2026-11-30T08:00:00Z",
		"2026-11-29T07:59:00Z": "2026-11-29T08:59:00Z",
		"2026-11-29T08:00:00Z": "2026-11-30T08:00:00Z",
	} {
		now, _ := time.Parse(time.RFC3339, at)
		r, ok := gmailquota.ParseRefusal(403, http.Header{}, body, now)
		if got := r.Until.Format(time.RFC3339); !ok || got != want {
			t.Errorf("at %s: until %s; want %s", at, got, want)
		}
	}
}

func FuzzParseRefusal(f *testing.F) {
	f.Add(429, "30", gmailError(429, "RESOURCE_EXHAUSTED", "rateLimitExceeded", in15))
	f.Add(403, "", "<html>")
	f.Fuzz(func(t *testing.T, status int, header, body string) {
		r, ok := gmailquota.ParseRefusal(status, http.Header{"Retry-After": {header}}, []byte(body), noon)
		if !ok && !r.Until.IsZero() || !r.Until.IsZero() && !r.Until.After(noon) {
			t.Errorf("%v, %v", r, ok)
		}
		if strings.ContainsAny(r.Reason, " \n@") || len(r.Reason) > 64 {
			t.Errorf("reason %q is no identifier", r.Reason)
		}
	})
}
