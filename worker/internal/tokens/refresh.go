package tokens

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

// refresh returns a usable access token: the stored one if another process has refreshed it, else a new one, which is
// stored before it is used.
//
// Processes do not lock each other out. Two that refresh at once both get tokens; the store's compare-and-swap lets one
// save, and the other takes what that one saved. Where the endpoint refuses the second of two overlapping requests as
// invalid_grant, that counts only if the refresh token is still the stored one after a moment, and is refused again.
func (s *Source) refresh(ctx context.Context, account string) (string, error) {
	if err := s.saveLeftover(ctx, account); err != nil {
		return "", err
	}
	refused := int64(-1) // version of the stored tokens whose refresh token was refused
	for {
		sealed, err := s.cfg.Store.Token(ctx, account)
		if err != nil {
			return "", fmt.Errorf("read the stored token: %w", err)
		}
		refresh, access, err := s.unseal(account, sealed)
		if err != nil {
			return "", err
		}
		if s.keep(account, access, sealed.Expires) {
			return access, nil
		}
		grant, err := s.Exchange(ctx, refresh)
		switch {
		case err == nil:
			won, err := s.adopt(ctx, account, &fresh{grant, sealed.Version})
			if won || err != nil {
				return grant.Access, err
			}
		case consumers.FaultOf(err) != consumers.AccountFault || refused == sealed.Version:
			return "", err
		default:
			refused = sealed.Version
			if err := sleep(ctx, settleTime+rand.N(settleTime)); err != nil {
				return "", err
			}
		}
	}
}

func (s *Source) unseal(account string, t consumers.Sealed) (refresh, access string, err error) {
	if refresh, err = s.cfg.Cipher.open(account, t.Refresh); err != nil {
		return "", "", err
	}
	if refresh == "" {
		return "", "", &consumers.MailboxError{
			Op: "token", Fault: consumers.AccountFault, State: consumers.Reauth, Reason: "no refresh token is stored",
		}
	}
	access, err = s.cfg.Cipher.open(account, t.Access)
	return refresh, access, err
}

// adopt saves a new token and then takes it for use. It reports false if another process was faster.
func (s *Source) adopt(ctx context.Context, account string, f *fresh) (won bool, err error) {
	won, err = s.save(ctx, account, *f)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(account)
	if err != nil {
		e.unsaved = f
		return false, err
	}
	if won {
		e.access, e.expires = f.grant.Access, f.grant.Expires
	}
	return won, nil
}

// saveLeftover saves the token that an earlier refresh could not.
func (s *Source) saveLeftover(ctx context.Context, account string) error {
	s.mu.Lock()
	f := s.entry(account).unsaved
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	_, err := s.save(ctx, account, *f)
	if err != nil && !errors.Is(err, consumers.ErrNoAccount) {
		return err
	}
	s.mu.Lock()
	s.entry(account).unsaved = nil
	s.mu.Unlock()
	return err
}

// save stores a grant; it reports false where the stored tokens are no longer those that the grant was issued for.
func (s *Source) save(ctx context.Context, account string, f fresh) (won bool, err error) {
	sealed, err := s.Seal(account, f.grant)
	if err != nil {
		return false, err
	}
	sealed.Version = f.version
	for try := 1; ; try++ {
		won, err = s.cfg.Store.SaveToken(ctx, account, sealed)
		if err == nil || errors.Is(err, consumers.ErrNoAccount) || try == saveTries {
			break
		}
		if sleep(ctx, time.Duration(try)*100*time.Millisecond) != nil {
			break
		}
	}
	if err != nil {
		s.cfg.Log.Error("a new token could not be stored", zap.Error(err))
		return false, fmt.Errorf("store a new token: %w", err)
	}
	return won, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
