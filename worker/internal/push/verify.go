package push

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"
)

// verifier proves that a request comes from the push subscription. idtoken checks signature, expiry and audience only;
// the audience is chosen by whoever mints a token, so issuer and service account are what tells us from a stranger's
// project.
type verifier struct {
	validator      *idtoken.Validator
	audience       string
	serviceAccount string
}

func newVerifier(ctx context.Context, cfg Config) (*verifier, error) {
	certs, err := url.Parse(cfg.CertsURL)
	if err != nil || certs.Host == "" {
		return nil, fmt.Errorf("push: certs URL %q: want an absolute URL", cfg.CertsURL)
	}
	base := cfg.HTTP
	if base == nil {
		base = http.DefaultTransport.(*http.Transport).Clone()
	}
	v, err := idtoken.NewValidator(ctx, option.WithHTTPClient(&http.Client{Transport: certsFrom{certs, base}}))
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return &verifier{validator: v, audience: cfg.Audience, serviceAccount: cfg.ServiceAccount}, nil
}

// certsTimeout bounds the fetching of Google's keys; Pub/Sub waits for an answer for 10 s at least.
const certsTimeout = 5 * time.Second

// certsFrom fetches Google's keys from the configured place: idtoken has their address built in. It reads the whole
// answer, so that all that can go wrong on the way, within certsTimeout, is a keysError.
type certsFrom struct {
	url  *url.URL
	base http.RoundTripper
}

// maxKeys is more than the keys' answer can have; Google's is about 1 kB.
const maxKeys = 1 << 20

func (c certsFrom) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), certsTimeout)
	defer cancel()
	out := req.Clone(ctx)
	out.URL, out.Host = c.url, ""
	resp, err := c.base.RoundTrip(out)
	if err != nil {
		return nil, &keysError{err}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys))
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return nil, &keysError{err}
	case resp.StatusCode != http.StatusOK:
		return nil, &keysError{fmt.Errorf("answered with status %d", resp.StatusCode)}
	case !json.Valid(data):
		return nil, &keysError{errors.New("the answer is no JSON")}
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// keysError says that Google's keys could not be had: whether the token is good is not known.
type keysError struct{ err error }

func (e *keysError) Error() string { return "keys of push.certsURL: " + e.err.Error() }

func (e *keysError) Unwrap() error { return e.err }

var (
	errNoToken  = errors.New("no bearer token")
	errNotRS256 = errors.New("token is not signed with RS256, as Google's are")
)

// check returns nil for a request of the configured service account, and a *keysError when it cannot tell. Its errors hold
// nothing of the token.
func (v *verifier) check(r *http.Request) error {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return errNoToken
	}
	if !isRS256(token) { // idtoken would accept ES256 too, and panics on a short signature
		return errNotRS256
	}
	p, err := v.validator.Validate(r.Context(), token, v.audience)
	if err != nil {
		return fmt.Errorf("token not accepted: %w", err)
	}
	email, _ := p.Claims["email"].(string)
	verified, _ := p.Claims["email_verified"].(bool)
	switch {
	case p.Issuer != "https://accounts.google.com" && p.Issuer != "accounts.google.com":
		return errors.New("token of another issuer than Google")
	case email != v.serviceAccount:
		return errors.New("token of another service account than push.serviceAccount")
	case !verified:
		return errors.New("token whose email is not verified")
	}
	return nil
}

func isRS256(token string) bool {
	head, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(head, "="))
	if err != nil {
		return false
	}
	var header struct {
		Alg string `json:"alg"`
	}
	return json.Unmarshal(raw, &header) == nil && header.Alg == "RS256"
}
