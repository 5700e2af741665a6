package gmailapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/option"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
)

// userAgent holds "gzip" because Gmail compresses its answers only for agents whose name does.
const userAgent = "gmailsync (gzip)"

// Tokens gives the access token of an account. Its errors may be *consumers.MailboxError; others count as passing.
// Safe for concurrent use.
type Tokens interface {
	// Token's ctx ends with the call that needs the token and has none of its values.
	Token(ctx context.Context, account string) (string, error)
	// Reject says that Gmail did not take this access token: the next Token is another one.
	Reject(account, access string)
}

// Config is what a Client needs.
type Config struct {
	Endpoint    string // of Gmail's API, https://gmail.googleapis.com
	Query       string // Gmail's search, which narrows ListThreads; empty: every thread
	NoSpamTrash bool   // ListThreads leaves out what is in spam or trash alone
	Topic       string // Pub/Sub topic for Watch, projects/…/topics/…; empty: Watch makes no call
	Tokens      Tokens //
	Guard       Guard  // nil: calls are not guarded
	// MaxWait is how long a call sleeps for an admission that it has reserved. A denial comes back at once.
	MaxWait time.Duration
	Base    http.RoundTripper // nil: a transport of its own
}

// Guard is what a Client asks; *gmailquota.Guard is one.
type Guard interface {
	quotahttp.Guard
	Acquire(ctx context.Context, r gmailquota.Request) (*gmailquota.Grant, error)
}

// Client opens mailboxes. It implements consumers.Mailboxes and is safe for concurrent use.
type Client struct {
	http      *http.Client
	service   *gmail.Service
	endpoint  string // ends in a slash
	topic     string
	query     string
	spamTrash bool
	imports   *consumers.Room // for large mail of class backfill
	others    *consumers.Room // and of the others
}

// New returns a Client. It makes no call.
func New(cfg Config) (*Client, error) {
	base := cfg.Base
	if base == nil {
		base = network()
	}
	var transport http.RoundTripper = &bearer{tokens: cfg.Tokens, base: base}
	if cfg.Guard != nil {
		transport = &quotahttp.Transport{Guard: once{cfg.Guard}, Base: transport, MaxWait: cfg.MaxWait}
	}
	c := &Client{
		http:      &http.Client{Transport: transport},
		endpoint:  strings.TrimSuffix(cfg.Endpoint, "/") + "/",
		topic:     cfg.Topic,
		query:     cfg.Query,
		spamTrash: !cfg.NoSpamTrash,
		imports:   consumers.NewRoom(1),
		others:    consumers.NewRoom(1),
	}
	var err error
	c.service, err = gmail.NewService(context.Background(),
		option.WithHTTPClient(c.http), option.WithEndpoint(c.endpoint), option.WithUserAgent(userAgent))
	if err != nil {
		return nil, fmt.Errorf("gmail client for %s: %w", cfg.Endpoint, err)
	}
	return c, nil
}

// Mailbox implements consumers.Mailboxes. It makes no call and returns no error.
func (c *Client) Mailbox(_ context.Context, account string, class gmailquota.Class) (consumers.Mailbox, error) {
	return c.mailbox(account, class), nil
}

// Attachment returns the decoded bytes of a message's part, as class maintenance: 20 units for the message, which
// tells the part's attachment id of the moment, and 20 for the part where its bytes are not in the message itself. The
// error is a *consumers.MailboxError, of fault Gone where message or part does not exist.
func (c *Client) Attachment(ctx context.Context, account, messageID, partID string) ([]byte, error) {
	return c.mailbox(account, gmailquota.Maintenance).attachment(ctx, messageID, partID)
}

// FetchParts returns the nodes of a message as Gmail has it now, for 20 units of class maintenance, with the attachment
// ids that Content takes. The error is a *consumers.MailboxError.
func (c *Client) FetchParts(ctx context.Context, account, messageID string) ([]Part, error) {
	return c.mailbox(account, gmailquota.Maintenance).parts(ctx, messageID)
}

// Content returns the decoded bytes of a part by the attachment id and the size that FetchParts gave, for 20 units of class
// maintenance. The error is a *consumers.MailboxError.
func (c *Client) Content(ctx context.Context, account, messageID, attachmentID string, size int64) ([]byte, error) {
	return c.mailbox(account, gmailquota.Maintenance).content(ctx, messageID, attachmentID, size, contentLimit)
}

// MessagePage is one page of a listing of messages. An empty Next ends the listing, nothing else does.
type MessagePage struct {
	Threads map[string]string // thread ids by message id
	Next    string
}

// Labeled lists the messages that have a label, trash and spam included, as class maintenance: 5 units a 500. The error is
// a *consumers.MailboxError.
func (c *Client) Labeled(ctx context.Context, account, label, pageToken string) (MessagePage, error) {
	return c.mailbox(account, gmailquota.Maintenance).labeled(ctx, label, pageToken)
}

// CloseIdle closes connections that are not in use.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

func (c *Client) mailbox(account string, class gmailquota.Class) *mailbox {
	return &mailbox{Client: c, account: account, class: class}
}

// network is Go's transport for one busy host whose answers may fail to come.
func network() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	t.ResponseHeaderTimeout = headerTimeout
	return t
}

// once asks the guard a single time for a call: its job, not its slot, waits out a denial.
type once struct{ Guard }

// Wait implements quotahttp.Guard.
func (o once) Wait(ctx context.Context, r gmailquota.Request, limit time.Duration) (*gmailquota.Grant, error) {
	r.MaxWait = limit
	grant, err := o.Acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, grant.Wait()); err != nil {
		grant.Refund(context.WithoutCancel(ctx))
		return nil, err
	}
	return grant, nil
}

// bearer adds the account's access token, below the guard: a token does not expire while its call waits.
type bearer struct {
	tokens Tokens
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	account, _, _ := gmailquota.CallFrom(req.Context())
	access, err := b.tokens.Token(bare{req.Context()}, account)
	if err != nil {
		return nil, &quotahttp.NotSentError{Err: fmt.Errorf("access token: %w", err)}
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+access)
	resp, err := b.base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		b.tokens.Reject(account, access)
	}
	return resp, err
}

// bare hides a context's values. The guard learns from a trace in the request's context whether Gmail was reached: what
// the token endpoint is sent must not count for that.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }

// CloseIdleConnections lets http.Client reach the base transport.
func (b *bearer) CloseIdleConnections() {
	if c, ok := b.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
