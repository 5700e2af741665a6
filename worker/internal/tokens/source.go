package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/gmailsync/gmailsync/consumers"
)

const (
	// margin: a token is refreshed this long before it expires, for clocks that differ and calls that take their time.
	margin = 60 * time.Second
	// exchangeTimeout bounds one request to the token endpoint.
	exchangeTimeout = 15 * time.Second
	// refreshTimeout bounds a whole refresh. It goes on when the caller that began it gives up: others may wait for it.
	refreshTimeout = time.Minute
	// settleTime is how long a process whose refresh was refused waits before it looks whether another one's succeeded:
	// the other's answer and its save may still be under way.
	settleTime = time.Second
	// saveTries is how often a new token is saved before the caller is told.
	saveTries = 3
)

// Store keeps each account's tokens. The methods return consumers.ErrNoAccount for an account without tokens.
type Store interface {
	Token(ctx context.Context, account string) (consumers.Sealed, error)
	// SaveToken stores t with version t.Version+1 if the stored version is t.Version; else it reports false.
	SaveToken(ctx context.Context, account string, t consumers.Sealed) (ok bool, err error)
}

// Config is what a Source needs.
type Config struct {
	TokenURL     string // OAuth token endpoint
	ClientID     string
	ClientSecret string
	Store        Store
	Cipher       *Cipher
	Log          *zap.Logger
	HTTP         *http.Client     // nil: one of its own
	Now          func() time.Time // nil: time.Now
}

// Source gives access tokens. Safe for concurrent use.
type Source struct {
	cfg    Config
	oauth  oauth2.Config
	flight singleflight.Group // by account

	mu       sync.Mutex
	accounts map[string]*entry
}

// entry is what this process knows of one account.
type entry struct {
	access   string
	expires  time.Time
	rejected string // the access token that Gmail refused last
	unsaved  *fresh
}

// fresh is a token that was issued and could not be saved yet. It must not be lost: the refresh token that it was
// issued for may no longer work.
type fresh struct {
	grant   Grant
	version int64 // of the stored tokens that it replaces
}

// New returns a Source.
func New(cfg Config) *Source {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Timeout: exchangeTimeout}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{
		cfg: cfg,
		oauth: oauth2.Config{
			ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret,
			// With its other styles x/oauth2 sends a refused request twice.
			Endpoint: oauth2.Endpoint{TokenURL: cfg.TokenURL, AuthStyle: oauth2.AuthStyleInParams},
		},
		accounts: map[string]*entry{},
	}
}

// Token returns an access token that is good for at least a minute, refreshing it if need be. Its errors are
// *consumers.MailboxError: AccountFault with state Reauth when the grant is revoked, else Passing.
func (s *Source) Token(ctx context.Context, account string) (string, error) {
	if access, ok := s.cached(account); ok {
		return access, nil
	}
	ch := s.flight.DoChan(account, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
		defer cancel()
		return s.refresh(ctx, account)
	})
	select {
	case <-ctx.Done():
		return "", &consumers.MailboxError{Op: "token", Err: ctx.Err()}
	case r := <-ch:
		if r.Err == nil {
			return r.Val.(string), nil
		}
		var me *consumers.MailboxError
		if errors.As(r.Err, &me) {
			return "", r.Err
		}
		return "", &consumers.MailboxError{Op: "token", Err: r.Err}
	}
}

// Reject tells that Gmail refused this access token (401): it is not given out again.
func (s *Source) Reject(account, access string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(account)
	e.rejected = access
}

// Seal encrypts a grant for the store; Version is left for the caller.
func (s *Source) Seal(account string, g Grant) (consumers.Sealed, error) {
	refresh, err := s.cfg.Cipher.seal(account, g.Refresh)
	if err != nil {
		return consumers.Sealed{}, err
	}
	access, err := s.cfg.Cipher.seal(account, g.Access)
	if err != nil {
		return consumers.Sealed{}, err
	}
	return consumers.Sealed{Refresh: refresh, Access: access, Expires: g.Expires}, nil
}

// entry returns the account's entry; s.mu is held.
func (s *Source) entry(account string) *entry {
	e := s.accounts[account]
	if e == nil {
		e = &entry{}
		s.accounts[account] = e
	}
	return e
}

func (s *Source) cached(account string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(account)
	return e.access, s.usable(e, e.access, e.expires)
}

// usable tells whether an access token can be given out; s.mu is held.
func (s *Source) usable(e *entry, access string, expires time.Time) bool {
	return access != "" && access != e.rejected && s.cfg.Now().Add(margin).Before(expires)
}

// keep takes an access token for use if it is usable.
func (s *Source) keep(account, access string, expires time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(account)
	if !s.usable(e, access, expires) {
		return false
	}
	e.access, e.expires = access, expires
	return true
}

// plain takes the request's URL out of an error of the HTTP client.
func plain(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return fmt.Errorf("%s: %w", ue.Op, ue.Err)
	}
	return err
}
