package gmailsim

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// endpoint collects push deliveries without a socket, and answers with the statuses given, then with 204.
type pushEndpoint struct {
	mu       sync.Mutex
	statuses []int
	got      []delivery
}

type delivery struct {
	at     time.Time
	header http.Header
	body   []byte
}

func (e *pushEndpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	e.got = append(e.got, delivery{time.Now(), req.Header, body})
	status := http.StatusNoContent
	if len(e.statuses) > 0 {
		status, e.statuses = e.statuses[0], e.statuses[1:]
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
}

func (e *pushEndpoint) deliveries() []delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got
}

func (r *rig) watch(body map[string]any) {
	r.t.Helper()
	body["topicName"] = "projects/p/topics/mail"
	r.ok("POST", "watch", body)
}

// ids returns the history ids of wrapped deliveries.
func (e *pushEndpoint) ids(t *testing.T) (ids []uint64) {
	t.Helper()
	for _, d := range e.deliveries() {
		ids = append(ids, wrapped(t, d).HistoryID)
	}
	return ids
}

func wrapped(t *testing.T, d delivery) (data struct {
	EmailAddress string
	HistoryID    uint64
}) {
	t.Helper()
	outer := decode[struct {
		Message struct {
			Data                   []byte
			MessageID, PublishTime string
			Attributes             map[string]string
		}
		Subscription string
	}](t, d.body)
	if outer.Message.MessageID == "" || outer.Subscription == "" {
		t.Errorf("no id or subscription in %s", d.body)
	}
	if _, err := time.Parse(time.RFC3339Nano, outer.Message.PublishTime); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(outer.Message.Data, &data); err != nil {
		t.Errorf("%v in %s", err, outer.Message.Data)
	}
	return data
}

// verify checks a JWT against the published keys and returns its claims.
func verify(t *testing.T, r *rig, token string) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/certs", nil))
	keys := decode[struct{ Keys []map[string]string }](t, w.Body.Bytes()).Keys
	number := func(name string) *big.Int {
		b := must(base64.RawURLEncoding.DecodeString(keys[0][name]))(t)
		return new(big.Int).SetBytes(b)
	}
	fields := strings.Split(token, ".")
	if len(fields) != 3 {
		t.Fatalf("no JWT: %q", token)
	}
	header := decode[map[string]string](t, must(base64.RawURLEncoding.DecodeString(fields[0]))(t))
	if header["kid"] != keys[0]["kid"] || header["alg"] != "RS256" {
		t.Errorf("header %v, key %v", header, keys[0])
	}
	sum := sha256.Sum256([]byte(fields[0] + "." + fields[1]))
	signature := must(base64.RawURLEncoding.DecodeString(fields[2]))(t)
	key := &rsa.PublicKey{N: number("n"), E: int(number("e").Int64())}
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		t.Error(err)
	}
	return decode[map[string]any](t, must(base64.RawURLEncoding.DecodeString(fields[1]))(t))
}

func pushRig(t *testing.T, cfg Config, statuses ...int) (*rig, *pushEndpoint) {
	e := &pushEndpoint{statuses: statuses}
	if cfg.Push == nil && cfg.Publish == nil {
		cfg.Push = []PushTarget{{URL: "http://worker.example/push", Audience: "aud", ServiceAccount: "sa@example.com"}}
	}
	r := newRig(t, cfg)
	r.s.client.Transport = e
	return r, e
}

func TestWatchAnswersAndTellsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{})
		r.deliver("before", "a@x") // nobody watches
		want := fmt.Sprintf(`{"historyId":"%d","expiration":"%d"}`, r.s.HistoryID(ann), time.Now().Add(watchLife).UnixMilli())
		if got := string(r.ok("POST", "watch", map[string]any{"topicName": "projects/p/topics/mail"})); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		synctest.Wait()
		if got := e.deliveries(); len(got) != 1 || wrapped(t, got[0]).HistoryID != r.s.HistoryID(ann) {
			t.Errorf("got %v", got)
		}
	})
}

// The historyId is a JSON number in a push, and the token is signed like Google's.
func TestPushLooksLikeGooglesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{})
		r.watch(map[string]any{})
		synctest.Wait()
		d := e.deliveries()[0]
		if data := wrapped(t, d); data.EmailAddress != ann {
			t.Errorf("data %+v", data)
		}
		claims := verify(t, r, strings.TrimPrefix(d.header.Get("Authorization"), "Bearer "))
		now := float64(time.Now().Unix())
		for name, want := range map[string]any{
			"iss": issuer, "aud": "aud", "email": "sa@example.com", "email_verified": true, "iat": now, "exp": now + 3600,
		} {
			if claims[name] != want {
				t.Errorf("%s: got %v, want %v", name, claims[name], want)
			}
		}
	})
}

func TestUnwrappedPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{Push: []PushTarget{{URL: "http://worker.example/push", Unwrapped: true}}})
		r.watch(map[string]any{})
		synctest.Wait()
		d := e.deliveries()[0]
		if want := fmt.Sprintf(`{"emailAddress":"ann@example.com","historyId":%d}`, r.s.HistoryID(ann)); string(d.body) != want {
			t.Errorf("got %s, want %s", d.body, want)
		}
		claims := verify(t, r, strings.TrimPrefix(d.header.Get("Authorization"), "Bearer "))
		if d.header.Get("X-Goog-Pubsub-Message-Id") == "" || claims["aud"] != "http://worker.example/push" || claims["email"] != DefaultServiceAccount {
			t.Errorf("header %v, claims %v", d.header, claims)
		}
	})
}

func TestAtMostOneNotificationASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{})
		r.watch(map[string]any{})
		for i := range 35 {
			time.Sleep(100 * time.Millisecond)
			r.deliver("x", fmt.Sprint(i, "@x"))
		}
		time.Sleep(5 * time.Second)
		got := e.deliveries()
		for i := 1; i < len(got); i++ {
			if gap := got[i].at.Sub(got[i-1].at); gap < time.Second {
				t.Errorf("two notifications within %v", gap)
			}
		}
		if ids := e.ids(t); len(ids) != 5 || ids[4] != r.s.HistoryID(ann) {
			t.Errorf("%d notifications, the last of %v, want 5 up to %d", len(ids), ids, r.s.HistoryID(ann))
		}
	})
}

// openclaw/gogcli#271: whatever does not acknowledge is delivered again.
func TestPushIsRepeatedUntilAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{}, 500, 0, 403, 429, 302)
		r.watch(map[string]any{})
		time.Sleep(time.Minute)
		got := e.deliveries()
		if len(got) != 6 {
			t.Fatalf("%d deliveries, want 6", len(got))
		}
		wait := firstRetry
		for i := 1; i < len(got); i++ {
			if gap := got[i].at.Sub(got[i-1].at); gap != wait || string(got[i].body) != string(got[0].body) {
				t.Errorf("delivery %d came after %v, want %v", i, gap, wait)
			}
			wait *= 2
		}
		if p := r.s.Stats().Accounts[ann].Pushes; p != (Pushes{Sent: 1, Retried: 5}) {
			t.Errorf("got %+v", p)
		}
	})
}

func TestPushGivesUpInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := make([]int, 100)
		r, _ := pushRig(t, Config{}, statuses...)
		r.watch(map[string]any{})
		time.Sleep(time.Hour)
		if p := r.s.Stats().Accounts[ann].Pushes; p != (Pushes{Retried: giveUpAfter, Dropped: 1}) {
			t.Errorf("got %+v", p)
		}
	})
}

func TestWatchFiltersByLabel(t *testing.T) {
	for behavior, want := range map[string]int{"include": 2, "exclude": 3} {
		synctest.Test(t, func(t *testing.T) {
			r, e := pushRig(t, Config{})
			m := must(r.s.Deliver(ann, mailText("a", "a@x"), "INBOX"))(t)
			r.watch(map[string]any{"labelIds": []string{"SPAM"}, "labelFilterBehavior": behavior})
			time.Sleep(2 * time.Second)
			must(r.s.Label(ann, m.ID, []string{"STARRED"}, nil))(t)
			time.Sleep(2 * time.Second)
			must(r.s.Label(ann, m.ID, []string{"SPAM"}, nil))(t)
			time.Sleep(2 * time.Second)
			must(r.s.Deliver(ann, mailText("b", "b@x")))(t)
			time.Sleep(2 * time.Second)
			if got := len(e.deliveries()); got != want {
				t.Errorf("%s: %d notifications, want %d", behavior, got, want)
			}
		})
	}
}

// openclaw/openclaw#24765: a watch ends after seven days, silently.
func TestWatchEnds(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"expiry": func(*rig) { time.Sleep(watchLife) },
		"stop":   func(r *rig) { r.ok("POST", "stop", nil) },
		"revocation": func(r *rig) {
			if err := r.s.Revoke(ann); err != nil {
				r.t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, e := pushRig(t, Config{})
			r.watch(map[string]any{})
			time.Sleep(time.Second)
			end(r)
			r.deliver("a", "a@x")
			time.Sleep(10 * time.Second)
			if got := len(e.deliveries()); got != 1 {
				t.Errorf("%s: %d notifications", name, got)
			}
		})
	}
}

func TestPublishGetsTheTopicAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		r, _ := pushRig(t, Config{Publish: func(_ context.Context, topic string, data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, topic+" "+string(data))
			if len(got) == 1 {
				return errors.New("not now")
			}
			return nil
		}})
		r.watch(map[string]any{})
		time.Sleep(10 * time.Second)
		want := fmt.Sprintf(`projects/p/topics/mail {"emailAddress":"ann@example.com","historyId":%d}`, r.s.HistoryID(ann))
		if len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("got %q, want %q twice", got, want)
		}
	})
}

func TestCloseEndsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := pushRig(t, Config{}, make([]int, 100)...)
		r.watch(map[string]any{})
		time.Sleep(time.Second)
		r.s.Close()
		before := len(e.deliveries())
		r.deliver("a", "a@x")
		time.Sleep(time.Minute)
		if after := len(e.deliveries()); after != before {
			t.Errorf("%d deliveries after Close", after-before)
		}
	})
}
