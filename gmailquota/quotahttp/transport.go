package quotahttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Guard is what a Transport asks; *gmailquota.Guard is one.
type Guard interface {
	Wait(ctx context.Context, r gmailquota.Request, limit time.Duration) (*gmailquota.Grant, error)
	Price(method string) (int64, error)
}

// Transport is an http.RoundTripper that sends what its Guard admits. The account and class of a request are in its
// context, see gmailquota.WithCall. A call counts as under way until its answer's body is read to the end or closed. An
// answer with which Gmail refuses (gmailquota.ParseRefusal), also within a batch, is told to the Guard and returned as it
// came. A charge is taken back when it is certain that nothing reached Gmail: Base could not connect, or says so with a
// *NotSentError.
//
// RoundTrip's errors beside Base's: *gmailquota.DeniedError, *gmailquota.UnavailableError, *gmailquota.PriceError,
// *UnknownError and gmailquota.ErrNoAccount, which http.Client wraps in a *url.Error; use errors.As. With these nothing
// was sent.
//
// Safe for concurrent use; the fields must not change after the first request.
type Transport struct {
	Guard Guard
	// Base sends; nil is http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait is how long a request may sleep until it may be sent; a longer wait is a *gmailquota.DeniedError at once.
	// 0: it never sleeps.
	MaxWait time.Duration
	// Now reads the time for stated waits; nil is time.Now.
	Now func() time.Time
}

// refusalBody is how much of a refusal is read to understand it; Gmail's are below 2 kB.
const refusalBody = 64 << 10

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent progress
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), sent.trace()))
	grant, err := t.admit(out)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper closes the body, also on errors
		}
		return nil, err
	}
	resp, err := t.base().RoundTrip(out)
	if err != nil {
		if sent.nothing(err) {
			grant.Refund(context.WithoutCancel(req.Context()))
		}
		grant.Release()
		return nil, err
	}
	t.report(out, grant, resp)
	resp.Body = &releasingBody{ReadCloser: resp.Body, grant: grant}
	return resp, nil
}

// admit prices the request and waits for its grant.
func (t *Transport) admit(req *http.Request) (*gmailquota.Grant, error) {
	account, class, ok := gmailquota.CallFrom(req.Context())
	if !ok || account == "" {
		return nil, gmailquota.ErrNoAccount
	}
	r := gmailquota.Request{Account: account, Class: class}
	var err error
	if isBatch(req) {
		r.Method = "batch"
		r.Calls, r.Units, err = t.priceBatch(req)
	} else {
		r.Method, err = Method(req.Method, req.URL)
	}
	if err != nil {
		return nil, err
	}
	return t.Guard.Wait(req.Context(), r, t.MaxWait)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport //nolint:forbidigo // as http.Client does without a transport
}

// NotSentError says that a request failed before anything of it was sent. A Base that stands between the Transport and
// the network returns it for failures of its own, such as an access token that it could not get.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return "not sent: " + e.Err.Error() }

func (e *NotSentError) Unwrap() error { return e.Err }

// report tells the Guard of refusals. It reads what it needs of the body and puts it back.
func (t *Transport) report(req *http.Request, grant *gmailquota.Grant, resp *http.Response) {
	now := time.Now
	if t.Now != nil {
		now = t.Now
	}
	var refusals []gmailquota.Refusal
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusForbidden:
		if r, ok := gmailquota.ParseRefusal(resp.StatusCode, resp.Header, peek(resp, refusalBody), now()); ok {
			refusals = append(refusals, r)
		}
	case resp.StatusCode == http.StatusOK && isBatch(req):
		refusals = batchRefusals(resp.Header.Get("Content-Type"), peek(resp, batchBytes), now())
	}
	for _, r := range refusals {
		// An error means that Redis was away; the guard remembers, and the answer is the caller's either way.
		_ = grant.Refused(context.WithoutCancel(req.Context()), r)
	}
}

// peek returns up to limit bytes of the answer's body, and leaves the body as it was.
func peek(resp *http.Response, limit int64) []byte {
	head, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	resp.Body = &rejoinedBody{Reader: io.MultiReader(bytes.NewReader(head), failing{err}, resp.Body), Closer: resp.Body}
	return head
}

// progress is how far a request came.
type progress struct{ asked, wrote atomic.Bool }

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:      func(string) { p.asked.Store(true) },
		WroteHeaders: func() { p.wrote.Store(true) },
	}
}

// nothing tells whether it is certain that Gmail saw nothing: Base says so, asked for a connection and never wrote to it,
// or could not dial.
func (p *progress) nothing(err error) bool {
	var notSent *NotSentError
	if errors.As(err, &notSent) {
		return true
	}
	if p.wrote.Load() {
		return false
	}
	var op *net.OpError
	return p.asked.Load() || errors.As(err, &op) && op.Op == "dial"
}

// releasingBody ends the call when the answer has been read.
type releasingBody struct {
	io.ReadCloser
	grant *gmailquota.Grant
}

func (b *releasingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.grant.Release()
	}
	return n, err
}

func (b *releasingBody) Close() error {
	b.grant.Release()
	return b.ReadCloser.Close()
}

type rejoinedBody struct {
	io.Reader
	io.Closer
}

// failing repeats the error that ended the reading of a body, if it was one.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, fmt.Errorf("reading Gmail's answer: %w", f.err)
	}
	return 0, io.EOF
}
