package gmailsim

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	issuer       = "https://accounts.google.com"
	grantedScope = "https://www.googleapis.com/auth/gmail.modify openid https://www.googleapis.com/auth/userinfo.email"
)

// tokens are the access tokens that were given out and have not expired.
type tokens struct {
	mu sync.Mutex
	m  map[string]accessToken
}

type accessToken struct {
	box     *mailbox
	grant   int
	expires time.Time
}

func (t *tokens) issue(a accessToken, now time.Time) string {
	token := "ya29.a0" + rand.Text() + rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	for old, a := range t.m {
		if now.After(a.expires) {
			delete(t.m, old)
		}
	}
	t.m[token] = a
	return token
}

func (t *tokens) lookup(token string) (accessToken, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.m[token]
	return a, ok
}

// authenticate returns the mailbox that a request's access token opens.
func (s *Server) authenticate(r *http.Request) (*mailbox, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, unauthorized()
	}
	a, ok := s.tokens.lookup(token)
	if !ok || !s.cfg.Now().Before(a.expires) {
		return nil, unauthorized()
	}
	a.box.mu.Lock()
	defer a.box.mu.Unlock()
	if a.box.revoked || a.box.grants != a.grant {
		return nil, unauthorized()
	}
	return a.box, nil
}

// serveToken is the OAuth token endpoint; it knows the refresh_token grant.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	s.tokenReply(r).write(w, r)
}

func (s *Server) tokenReply(r *http.Request) reply {
	if err := r.ParseForm(); err != nil {
		return oauthError(400, "invalid_request", "The form cannot be read.")
	}
	box, grant := s.grantOf(r.PostForm.Get("refresh_token"))
	address := ""
	if box != nil {
		address = box.address
	}
	var cut bool
	if fault := s.faults.match("token", "", address, s.cfg.Now()); fault != nil {
		s.meter.faulted()
		pause(r.Context(), fault.Delay)
		cut = fault.Cut
		if !cut && !fault.passes() {
			return fault.tokenReply()
		}
	}
	clientID, secret, basic := r.BasicAuth()
	if !basic {
		clientID, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	switch {
	case r.PostForm.Get("grant_type") != "refresh_token":
		return oauthError(400, "unsupported_grant_type", "Invalid grant_type: only refresh_token is known here.")
	case s.cfg.ClientID != "" && (clientID != s.cfg.ClientID || secret != s.cfg.ClientSecret):
		return oauthError(401, "invalid_client", "The OAuth client was not found.")
	case box == nil:
		return oauthError(400, "invalid_grant", "Token has been expired or revoked.")
	}
	answer := s.grantAccess(box, grant, clientID)
	answer.cut = cut
	return answer
}

func (s *Server) grantAccess(box *mailbox, grant int, clientID string) reply {
	now := s.cfg.Now()
	token := s.tokens.issue(accessToken{box: box, grant: grant, expires: now.Add(s.cfg.TokenTTL)}, now)
	body, err := json.Marshal(struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Scope       string `json:"scope"`
		TokenType   string `json:"token_type"`
		IDToken     string `json:"id_token"`
	}{token, max(int64(s.cfg.TokenTTL/time.Second)-1, 1), grantedScope, "Bearer", s.idToken(box, clientID, now)})
	if err != nil {
		return errorReply(err)
	}
	return reply{code: http.StatusOK, body: body}
}

func (s *Server) idToken(box *mailbox, clientID string, now time.Time) string {
	return processKey().sign(map[string]any{
		"iss": issuer, "aud": clientID, "azp": clientID, "sub": box.sub, "email": box.address, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
}

// grantOf returns the mailbox that a refresh token opens, or nil.
func (s *Server) grantOf(token string) (*mailbox, int) {
	for _, box := range s.boxes() {
		box.mu.Lock()
		same, grant := token != "" && token == box.refreshToken && !box.revoked, box.grants
		box.mu.Unlock()
		if same {
			return box, grant
		}
	}
	return nil, 0
}

func oauthError(code int, reason, description string) reply {
	body, err := json.Marshal(map[string]string{"error": reason, "error_description": description})
	if err != nil {
		return errorReply(err)
	}
	return reply{code: code, body: body}
}

// tokenReply answers in OAuth's form.
func (f *Fault) tokenReply() reply {
	if f.Body != "" || f.Empty || f.Drop {
		return f.reply()
	}
	reason := f.Reason
	if reason == "" {
		reason = "invalid_grant"
	}
	return oauthError(f.Status, reason, f.Message)
}

// signingKey signs ID tokens and push notifications.
type signingKey struct {
	private *rsa.PrivateKey
	id      string
}

// processKey is shared by all servers of a process: making one takes a good part of a second.
var processKey = sync.OnceValue(newSigningKey)

func newSigningKey() *signingKey {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // the size is valid and the reader never fails
	}
	sum := sha256.Sum256(private.N.Bytes())
	return &signingKey{private: private, id: base64.RawURLEncoding.EncodeToString(sum[:20])}
}

// sign makes a JWT (RS256).
func (k *signingKey) sign(claims map[string]any) string {
	encode := func(v any) string { return base64.RawURLEncoding.EncodeToString(appendJSON(nil, v)) }
	text := encode(map[string]string{"alg": "RS256", "kid": k.id, "typ": "JWT"}) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, k.private, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // the key is longer than the hash
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// serveCerts publishes the key as a JSON Web Key Set.
func (s *Server) serveCerts(w http.ResponseWriter, _ *http.Request) {
	k := processKey()
	e := big.NewInt(int64(k.private.E)).Bytes()
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "public, max-age=19800, must-revalidate, no-transform")
	_, _ = w.Write(appendJSON(nil, map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": k.id,
		"n": base64.RawURLEncoding.EncodeToString(k.private.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(e),
	}}}))
}
