package gmailsim

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type tokenAnswer struct {
	Code             int
	AccessToken      string `json:"access_token"`
	RefreshToken     string `json:"refresh_token"`
	ExpiresIn        int64  `json:"expires_in"`
	TokenType        string `json:"token_type"`
	IDToken          string `json:"id_token"`
	Error            string
	ErrorDescription string `json:"error_description"`
}

func (r *rig) tokenAnswer(refreshToken string) tokenAnswer {
	r.t.Helper()
	w := r.refresh(refreshToken)
	a := decode[tokenAnswer](r.t, w.Body.Bytes())
	a.Code = w.Code
	return a
}

// A refresh answer has no refresh_token; its ID token names the account.
func TestTokenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{TokenTTL: 10 * time.Minute})
		a := r.tokenAnswer(r.account.RefreshToken)
		if a.Code != 200 || a.RefreshToken != "" || a.ExpiresIn != 599 || a.TokenType != "Bearer" {
			t.Errorf("got %+v", a)
		}
		claims := verify(t, r, a.IDToken)
		if claims["sub"] != r.account.Sub || claims["email"] != ann || claims["aud"] != "me" || claims["iss"] != issuer {
			t.Errorf("claims %v", claims)
		}
		old := r.token
		time.Sleep(5 * time.Minute)
		r.token = r.login(r.account)
		r.ok("GET", "profile", nil)
		r.token = old
		r.ok("GET", "profile", nil)
		time.Sleep(5 * time.Minute)
		r.fails(401, "authError", "GET", "profile", nil)
	})
}

func TestTokenEndpointRefuses(t *testing.T) {
	r := newRig(t, Config{ClientID: "me", ClientSecret: ""})
	post := func(form url.Values) (int, string) {
		req := httptest.NewRequest(http.MethodPost, "/token", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		r.h.ServeHTTP(w, req)
		return w.Code, decode[tokenAnswer](t, w.Body.Bytes()).Error
	}
	good := r.account.RefreshToken
	for _, c := range []struct {
		form url.Values
		code int
		err  string
	}{
		{url.Values{"grant_type": {"refresh_token"}, "refresh_token": {good}, "client_id": {"me"}}, 200, ""},
		{url.Values{"grant_type": {"refresh_token"}, "refresh_token": {good}, "client_id": {"you"}}, 401, "invalid_client"},
		{url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"x"}, "client_id": {"me"}}, 400, "invalid_grant"},
		{url.Values{"grant_type": {"refresh_token"}, "client_id": {"me"}}, 400, "invalid_grant"},
		{url.Values{"grant_type": {"password"}, "client_id": {"me"}}, 400, "unsupported_grant_type"},
	} {
		if code, err := post(c.form); code != c.code || err != c.err {
			t.Errorf("%v: got %d %s, want %d %s", c.form, code, err, c.code, c.err)
		}
	}
}

// openclaw/gogcli#930: taking access away ends everything at once; a new grant has the same sub and another token.
func TestRevocation(t *testing.T) {
	r := newRig(t, Config{})
	if err := r.s.Revoke(ann); err != nil {
		t.Fatal(err)
	}
	r.fails(401, "authError", "GET", "profile", nil)
	if a := r.tokenAnswer(r.account.RefreshToken); a.Code != 400 || a.Error != "invalid_grant" {
		t.Errorf("got %+v", a)
	}
	again := r.s.AddAccount(ann)
	if again.Sub != r.account.Sub || again.RefreshToken == r.account.RefreshToken {
		t.Errorf("before %+v, after %+v", r.account, again)
	}
	r.fails(401, "authError", "GET", "profile", nil) // a token of the old grant
	if a := r.tokenAnswer(r.account.RefreshToken); a.Error != "invalid_grant" {
		t.Errorf("the old refresh token: %+v", a)
	}
	r.token = r.login(again)
	r.ok("GET", "profile", nil)
}

// valon-technologies/gestalt#354: what is not the user's doing looks different from a revocation.
func TestTokenEndpointFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.s.AddFault(Fault{Method: "token", Account: ann, Status: 503, Body: "busy"})
		r.s.AddFault(Fault{Method: "token", Status: 401, Reason: "invalid_client"})
		r.s.AddFault(Fault{Method: "token", Delay: 3 * time.Second})
		if w := r.refresh(r.account.RefreshToken); w.Code != 503 || w.Body.String() != "busy" {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		if a := r.tokenAnswer(r.account.RefreshToken); a.Code != 401 || a.Error != "invalid_client" {
			t.Errorf("got %+v", a)
		}
		start := time.Now()
		if a := r.tokenAnswer(r.account.RefreshToken); a.Code != 200 || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), a)
		}
	})
}
