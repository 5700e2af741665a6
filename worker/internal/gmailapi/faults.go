package gmailapi

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"google.golang.org/api/googleapi"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// unstatedWait is the pause after a refusal that does not say when to come back. The guard knows better where there is
// one: it denies the call until its pause is over.
const unstatedWait = 2 * time.Second

var (
	errTooLarge = errors.New("the answer is too large to be held")
	errAnswer   = errors.New("the answer cannot be read")
)

// accountReasons are Gmail's ways to say that nothing will work for this account until somebody acts.
var accountReasons = map[string]bool{
	"insufficientPermissions": true, // the grant lacks the scope, or gmail.metadata was granted beside it
	"forbidden":               true,
	"accessNotConfigured":     true, // the API is off in the Google project
	"domainPolicy":            true, // the administrator of the domain does not allow it
}

// classify tells what a failed attempt means. What comes from outside is reduced to status and reason: Gmail's messages
// may hold addresses, and URLs page tokens.
func classify(op string, err error, now time.Time) *consumers.MailboxError {
	var (
		failure     *consumers.MailboxError
		denied      *gmailquota.DeniedError
		unavailable *gmailquota.UnavailableError
		price       *gmailquota.PriceError
		answer      *googleapi.Error
		request     *url.Error
	)
	switch {
	case errors.As(err, &failure): // the tokens'
		f := *failure
		f.Op = op
		return &f
	case errors.As(err, &denied):
		return &consumers.MailboxError{Op: op, Fault: consumers.Throttled, Wait: denied.Wait, Denied: true, Reason: denied.Bucket}
	case errors.As(err, &unavailable):
		return &consumers.MailboxError{Op: op, Fault: consumers.Throttled, Wait: unavailable.Wait, Denied: true, Err: unavailable}
	case errors.As(err, &price):
		return &consumers.MailboxError{Op: op, Fault: consumers.Permanent, Err: price}
	case errors.As(err, &answer):
		return classifyAnswer(op, answer, now)
	case errors.Is(err, consumers.ErrLargeThread):
		return &consumers.MailboxError{Op: op, Fault: consumers.Permanent, Err: consumers.ErrLargeThread}
	case errors.Is(err, errTooLarge):
		return &consumers.MailboxError{Op: op, Fault: consumers.Permanent, Err: errTooLarge}
	case errors.As(err, &request):
		err = request.Err // without the URL
	}
	return &consumers.MailboxError{Op: op, Fault: consumers.Passing, Err: err}
}

// classifyAnswer reads the status first and the body second: a body may be HTML, or none.
func classifyAnswer(op string, e *googleapi.Error, now time.Time) *consumers.MailboxError {
	f := &consumers.MailboxError{Op: op, Status: e.Code, Reason: reason(e), Fault: consumers.Passing}
	refusal, refused := gmailquota.ParseRefusal(e.Code, e.Header, []byte(e.Body), now)
	switch {
	case refused:
		f.Fault, f.Wait = consumers.Throttled, unstatedWait
		if !refusal.Until.IsZero() {
			f.Wait = refusal.Until.Sub(now)
		}
	case e.Code == http.StatusUnauthorized: // with a token made for this call
		f.Fault, f.State = consumers.AccountFault, consumers.Reauth
	case e.Code == http.StatusForbidden && accountReasons[f.Reason],
		e.Code == http.StatusBadRequest && f.Reason == "failedPrecondition": // no Gmail mailbox
		f.Fault, f.State = consumers.AccountFault, consumers.Stopped
	case e.Code == http.StatusForbidden, e.Code == http.StatusRequestTimeout, e.Code == http.StatusConflict:
		// Passing. A 403 that does not explain itself must not disable an account.
	case e.Code == http.StatusNotFound:
		f.Fault = consumers.Gone
	case e.Code >= 400 && e.Code < 500:
		f.Fault = consumers.Permanent
	}
	return f
}

// identifier is what reasons look like; anything else is not repeated.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

func reason(e *googleapi.Error) string {
	for _, item := range e.Errors {
		if identifier.MatchString(item.Reason) {
			return item.Reason
		}
	}
	return "no reason given"
}
