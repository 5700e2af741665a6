package tokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/gmailsync/gmailsync/consumers"
)

// shortLife is the life of a token whose issuer does not say how long it lives.
const shortLife = 5 * time.Minute

// Grant is what the token endpoint gave for a refresh token.
type Grant struct {
	Sub     string    // the account's stable id from the ID token; empty if none came
	Scopes  []string  // granted scopes; nil if the endpoint did not say
	Refresh string    // the refresh token to keep: a new one, or the one used
	Access  string    // the access token
	Expires time.Time // of the access token
}

// Exchange asks the token endpoint once. Its errors are *consumers.MailboxError: AccountFault where the endpoint says
// that the grant is gone (invalid_grant), else Passing: an outage or a wrong client secret are not the user's doing.
func (s *Source) Exchange(ctx context.Context, refresh string) (Grant, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.cfg.HTTP)
	t, err := s.oauth.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Grant{}, exchangeError(err)
	}
	g := Grant{Refresh: t.RefreshToken, Access: t.AccessToken, Expires: t.Expiry}
	if g.Expires.IsZero() {
		g.Expires = s.cfg.Now().Add(shortLife)
	}
	if scope, _ := t.Extra("scope").(string); scope != "" {
		g.Scopes = strings.Fields(scope)
	}
	if id, _ := t.Extra("id_token").(string); id != "" {
		g.Sub = subject(id)
	}
	return g, nil
}

// identifier is what error codes look like; anything else is not repeated.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// exchangeError keeps the endpoint's error code and drops its texts, which may hold anything.
func exchangeError(err error) error {
	me := &consumers.MailboxError{Op: "token", Fault: consumers.Passing}
	var re *oauth2.RetrieveError
	if !errors.As(err, &re) {
		me.Err = plain(err)
		return me
	}
	me.Status = re.Response.StatusCode
	if me.Reason = re.ErrorCode; !identifier.MatchString(me.Reason) {
		me.Reason = "no reason given"
	}
	if me.Status < http.StatusInternalServerError && re.ErrorCode == "invalid_grant" {
		me.Fault, me.State = consumers.AccountFault, consumers.Reauth
	}
	return me
}

// subject reads the sub claim of an ID token. The signature needs no check: the token came straight from its issuer.
func subject(idToken string) string {
	parts := strings.Split(idToken, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Sub
}
