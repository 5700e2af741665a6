package gmailapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const secret = "ann@example.com"

func jsonError(code, reason, message string) string {
	return `{"error":{"code":` + code + `,"message":"` + message + `","errors":[{"domain":"usageLimits","reason":"` + reason + `","message":"` + message + `"}]}}`
}

// What each of Gmail's answers means (GAM-team/got-your-back#309, mxngls/gmail-cleaner#5, vitalif/grive2#169;
// googlecodelabs/gcf-gmail-codelab#10, bytechefhq/bytechef#5394, dtylman/gitmoo-goog#37, garrytan/gbrain#4959), how
// often it is asked, and that nothing of the answer's text gets out.
func TestAnswersOfGmail(t *testing.T) {
	const once, thrice = 1, attempts
	for name, c := range map[string]struct {
		answer answer
		fault  consumers.Fault
		calls  int
		state  consumers.State
		wait   time.Duration
	}{
		"403 rateLimitExceeded":       {answer{status: 403, body: jsonError("403", "rateLimitExceeded", "Queries per minute per user of "+secret)}, consumers.Throttled, once, "", unstatedWait},
		"403 userRateLimitExceeded":   {answer{status: 403, body: jsonError("403", "userRateLimitExceeded", secret)}, consumers.Throttled, once, "", unstatedWait},
		"403 quotaExceeded":           {answer{status: 403, body: jsonError("403", "quotaExceeded", secret)}, consumers.Throttled, once, "", unstatedWait},
		"429 without errors":          {answer{status: 429, body: `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","errors":[]}}`}, consumers.Throttled, once, "", unstatedWait},
		"429 HTML":                    {answer{status: 429, body: "<html>" + secret + "</html>"}, consumers.Throttled, once, "", unstatedWait},
		"429 with Retry-After":        {answer{status: 429, header: http.Header{"Retry-After": {"90"}}}, consumers.Throttled, once, "", 90 * time.Second},
		"403 insufficientPermissions": {answer{status: 403, body: jsonError("403", "insufficientPermissions", secret)}, consumers.AccountFault, once, consumers.Stopped, 0},
		"403 forbidden":               {answer{status: 403, body: jsonError("403", "forbidden", "Delegation denied for "+secret)}, consumers.AccountFault, once, consumers.Stopped, 0},
		"403 accessNotConfigured":     {answer{status: 403, body: jsonError("403", "accessNotConfigured", secret)}, consumers.AccountFault, once, consumers.Stopped, 0},
		"403 domainPolicy":            {answer{status: 403, body: jsonError("403", "domainPolicy", secret)}, consumers.AccountFault, once, consumers.Stopped, 0},
		"403 HTML":                    {answer{status: 403, body: "<html>" + secret + "</html>"}, consumers.Passing, thrice, "", 0},
		"403 empty":                   {answer{status: 403}, consumers.Passing, thrice, "", 0},
		"400 no mailbox":              {answer{status: 400, body: jsonError("400", "failedPrecondition", "Mail service not enabled")}, consumers.AccountFault, once, consumers.Stopped, 0},
		"400":                         {answer{status: 400, body: jsonError("400", "invalidArgument", secret)}, consumers.Permanent, once, "", 0},
		"401 twice":                   {answer{status: 401, body: jsonError("401", "authError", secret)}, consumers.AccountFault, 2, consumers.Reauth, 0},
		"404":                         {answer{status: 404, body: jsonError("404", "notFound", secret)}, consumers.Gone, once, "", 0},
		"500":                         {answer{status: 500, body: jsonError("500", "backendError", secret)}, consumers.Passing, thrice, "", 0},
		"503 empty":                   {answer{status: 503}, consumers.Passing, thrice, "", 0},
		"200 with cut JSON":           {answer{status: 200, body: `{"id":"1","historyId":"7","snippet":"` + secret}, consumers.Passing, thrice, "", 0},
		"200 HTML":                    {answer{status: 200, body: "<html>" + secret + "</html>"}, consumers.Passing, thrice, "", 0},
		"dropped connection":          {answer{err: io.ErrUnexpectedEOF}, consumers.Passing, thrice, "", 0},
		"denied by the guard":         {answer{err: &gmailquota.DeniedError{Wait: 3 * time.Second, Bucket: "user"}}, consumers.Throttled, once, "", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{answers: []answer{c.answer}}
				failure := failedGet(t, base, &numbered{})
				if failure.Fault != c.fault || failure.State != c.state || failure.Wait != c.wait || failure.Status != c.answer.status && c.answer.status != 200 {
					t.Errorf("%+v, want %s, state %q, wait %s", failure, c.fault, c.state, c.wait)
				}
				if base.calls != c.calls {
					t.Errorf("asked %d times, want %d", base.calls, c.calls)
				}
				if strings.Contains(failure.Error(), secret) || strings.Contains(failure.Error(), "18c0ffee") {
					t.Errorf("the error repeats what Gmail or the caller said: %v", failure)
				}
			})
		})
	}
}

func failedGet(t *testing.T, base http.RoundTripper, tokens Tokens) *consumers.MailboxError {
	t.Helper()
	c, err := New(Config{Endpoint: "https://gmail.example", Tokens: tokens, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	box, _ := c.Mailbox(t.Context(), account, gmailquota.Backfill)
	_, err = box.GetMessage(t.Context(), "18c0ffee")
	var failure *consumers.MailboxError
	if !errors.As(err, &failure) {
		t.Fatalf("error %v, want a MailboxError", err)
	}
	if failure.Op != "messages.get" {
		t.Errorf("operation %q", failure.Op)
	}
	return failure
}

// The project is over for the day: every account waits for hours, none is disabled.
func TestADailyLimitWaitsForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []answer{{status: 403, body: jsonError("403", "dailyLimitExceeded", secret)}}}
		if f := failedGet(t, base, &numbered{}); f.Fault != consumers.Throttled || f.Wait < time.Hour {
			t.Errorf("%+v, want a wait until the day turns", f)
		}
	})
}

// A body of null decodes into nothing: no method may take it for an answer.
func TestNullIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []answer{{status: 200, body: "null", header: http.Header{"Content-Type": {"application/json"}}}}}
		c, err := New(Config{Endpoint: "https://gmail.example", Topic: topic, Tokens: &numbered{}, Base: base})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		box, _ := c.Mailbox(ctx, account, gmailquota.Backfill)
		for op, call := range map[string]func() error{
			"getProfile":   func() error { return second(box.Profile(ctx)) },
			"watch":        func() error { return second(box.Watch(ctx)) },
			"labels.list":  func() error { return second(box.Labels(ctx)) },
			"threads.list": func() error { return second(box.ListThreads(ctx, "")) },
			"threads.get":  func() error { return second(box.GetThread(ctx, "1")) },
			"messages.get": func() error { return second(box.GetMessage(ctx, "1")) },
			"history.list": func() error { return second(box.History(ctx, 1, "")) },
			"attachments":  func() error { return second(c.Attachment(ctx, account, "1", "0")) },
		} {
			if err := call(); err == nil || consumers.FaultOf(err) != consumers.Passing {
				t.Errorf("%s took null: %v", op, err)
			}
		}
	})
}

func TestAPassingFaultPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := answer{status: 200, body: `{"id":"1","threadId":"1","historyId":"7"}`}
		base := &script{answers: []answer{{status: 503}, {err: io.ErrUnexpectedEOF}, good}}
		c, err := New(Config{Endpoint: "https://gmail.example", Tokens: &numbered{}, Base: base})
		if err != nil {
			t.Fatal(err)
		}
		box, _ := c.Mailbox(t.Context(), account, gmailquota.Backfill)
		start := time.Now()
		m, err := box.GetMessage(t.Context(), "1")
		if err != nil || m.HistoryID != 7 {
			t.Fatalf("%+v, %v", m, err)
		}
		if took := time.Since(start); took < 500*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("two pauses took %s, want 0.5 s to 1.5 s", took)
		}
	})
}

func TestARejectedTokenIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []answer{{status: 401}}}
		_ = failedGet(t, base, &numbered{})
		if want := "Bearer token-1,Bearer token-2"; strings.Join(base.tokens, ",") != want {
			t.Errorf("tokens %v, want %s", base.tokens, want)
		}
	})
}

type failingTokens struct{ err error }

func (f failingTokens) Token(context.Context, string) (string, error) { return "", f.err }
func (f failingTokens) Reject(string, string)                         {}

// Only the token endpoint's own word disables an account (trycompai/comp#3143, valon-technologies/gestalt#354).
func TestFailedTokensKeepTheirMeaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{answers: []answer{{status: 200}}}
		revoked := &consumers.MailboxError{Op: "token", Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "invalid_grant"}
		if f := failedGet(t, base, failingTokens{revoked}); f.Fault != consumers.AccountFault || f.State != consumers.Reauth || f.Reason != "invalid_grant" {
			t.Errorf("a revoked grant: %+v", f)
		}
		if f := failedGet(t, base, failingTokens{errors.New("no connection")}); f.Fault != consumers.Passing {
			t.Errorf("the endpoint is away: %+v", f)
		}
		if base.calls != 0 {
			t.Errorf("%d calls without a token", base.calls)
		}
	})
}

func TestAnEndedContextIsNotRetried(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	base := &script{answers: []answer{{err: context.Canceled}}}
	c, err := New(Config{Endpoint: "https://gmail.example", Tokens: &numbered{}, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	box, _ := c.Mailbox(ctx, account, gmailquota.Backfill)
	if _, err := box.Profile(ctx); !errors.Is(err, context.Canceled) || base.calls > 1 {
		t.Errorf("%v after %d calls", err, base.calls)
	}
}
