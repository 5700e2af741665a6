package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
)

// AddAccount stores a refresh token and starts the import of its mailbox; a running worker on the same store begins
// within a second. An account that is known gets the new token and goes on where it was, from its old cursor. The
// token endpoint is asked, and Gmail for the profile, through the guard: a token of another mailbox is refused.
func (m *Mirror) AddAccount(ctx context.Context, address, refreshToken string) (AccountStatus, error) {
	parsed, err := mail.ParseAddress(address)
	if err != nil || parsed.Name != "" {
		return AccountStatus{}, errors.New("--address: want one plain mail address, as name@example.com")
	}
	address = strings.ToLower(parsed.Address)
	grant, err := m.tokens.Exchange(ctx, refreshToken)
	if err != nil {
		return AccountStatus{}, fmt.Errorf("the refresh token was not accepted: %w", err)
	}
	if err := checkScopes(grant.Scopes); err != nil {
		return AccountStatus{}, err
	}
	id := grant.Sub
	if id == "" {
		id = accountIDOf(address)
	}
	if err := m.checkProfile(ctx, id, address, grant.Access); err != nil {
		return AccountStatus{}, err
	}
	sealed, err := m.tokens.Seal(id, grant)
	if err != nil {
		return AccountStatus{}, err
	}
	if err := m.store.AddAccount(ctx, consumers.Account{ID: id, Address: address}, sealed); err != nil {
		return AccountStatus{}, err
	}
	a, err := m.store.Account(ctx, id)
	if err != nil {
		return AccountStatus{}, err
	}
	return m.status(ctx, a)
}

// readScopes are those that let a mirror read everything.
var readScopes = []string{
	"https://mail.google.com/", "https://www.googleapis.com/auth/gmail.modify", "https://www.googleapis.com/auth/gmail.readonly",
}

// checkScopes refuses a grant with which Gmail would refuse the calls. An endpoint that names no scopes passes.
func checkScopes(granted []string) error {
	const metadata = "https://www.googleapis.com/auth/gmail.metadata"
	switch {
	case granted == nil:
		return nil
	case slices.Contains(granted, metadata):
		return errors.New("the grant includes the scope gmail.metadata, with which Gmail refuses whole messages: ask for gmail.readonly alone")
	case !slices.ContainsFunc(readScopes, func(s string) bool { return slices.Contains(granted, s) }):
		return errors.New("the grant includes no scope that reads mail: ask for gmail.readonly (or gmail.modify)")
	}
	return nil
}

// accountIDOf is the stable id where Google told no subject: derived from the address as it was when the account was
// connected, so that workers with separate stores charge one quota bucket for one mailbox.
func accountIDOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return "a" + hex.EncodeToString(sum[:10])
}

// checkProfile refuses a token that opens another mailbox than the one it was added for, before anything is stored.
func (m *Mirror) checkProfile(ctx context.Context, id, address, access string) error {
	client, err := gmailapi.New(m.gmailConfig(freshToken(access)))
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	mailbox, err := client.Mailbox(ctx, id, gmailquota.Maintenance)
	if err != nil {
		return err
	}
	profile, err := insist(ctx, func() (consumers.Profile, error) { return mailbox.Profile(ctx) })
	if err != nil {
		return err
	}
	if !strings.EqualFold(profile.Address, address) {
		return errors.New("--address: the refresh token belongs to another mailbox")
	}
	return nil
}

// freshToken is an access token that was given a moment ago and is not stored yet.
type freshToken string

func (t freshToken) Token(context.Context, string) (string, error) { return string(t), nil }

func (t freshToken) Reject(string, string) {}

// RemoveAccount deletes an account with everything that is stored of it.
func (m *Mirror) RemoveAccount(ctx context.Context, id string) error {
	return m.store.RemoveAccount(ctx, id)
}

// ResyncAccount starts a complete comparison of the mailbox with the mirror; a running worker does it. It reports false
// if a run is under way already.
func (m *Mirror) ResyncAccount(ctx context.Context, id string) (bool, error) {
	a, err := m.store.Account(ctx, id)
	if err != nil {
		return false, err
	}
	if !a.State.Active() {
		return false, fmt.Errorf("account %s is %s (%s): connect it again first, with `gmailsync account add`", id, a.State, a.Reason)
	}
	_, started, err := m.store.StartRun(ctx, id, consumers.RunResync, time.Now())
	return started, err
}

// insist repeats a call that is denied or throttled, after the wait that it was told, until ctx ends.
func insist[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for {
		v, err := call()
		wait, throttled := consumers.WaitOf(err)
		if !throttled {
			return v, err
		}
		if over := pause(ctx, wait); over != nil {
			return v, errors.Join(over, err)
		}
	}
}

// pause returns early, with the cause, when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
