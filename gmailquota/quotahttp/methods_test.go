package quotahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
)

type document struct {
	RootURL, BatchPath string
	resource
}

type resource struct {
	Methods map[string]struct {
		ID, HTTPMethod, Path string
		MediaUpload          struct {
			Protocols map[string]struct{ Path string }
		}
	}
	Resources map[string]resource
}

// method is one of Gmail's methods, with the URLs by which it can be called.
type method struct {
	name, verb string
	urls       []string
}

// discovery is Gmail's own description, which ships with its Go client.
func discovery(t *testing.T) document {
	t.Helper()
	answer, err := exec.Command("go", "mod", "download", "-json", "google.golang.org/api").Output()
	if err != nil {
		t.Fatalf("finding the module google.golang.org/api: %v", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(answer, &module); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(module.Dir, "gmail", "v1", "gmail-api.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

var parameter = regexp.MustCompile(`\{\+?[A-Za-z]+\}`)

// methods lists all methods of the document. Their ids look like paths.
func (d document) methods() []method {
	var out []method
	var walk func(resource)
	walk = func(r resource) {
		for _, m := range r.Methods {
			paths := []string{"/" + m.Path, "/some/proxy/" + m.Path}
			for _, p := range m.MediaUpload.Protocols {
				paths = append(paths, p.Path)
			}
			found := method{name: strings.TrimPrefix(m.ID, "gmail.users."), verb: m.HTTPMethod}
			for _, p := range paths {
				found.urls = append(found.urls, "https://gmail.googleapis.com"+parameter.ReplaceAllString(p, "send%2F..%3Aenable")+"?alt=json")
			}
			out = append(out, found)
		}
		for _, s := range r.Resources {
			walk(s)
		}
	}
	walk(d.resource)
	return out
}

// All methods of the discovery document have a price and are recognized by verb and path, uploads included.
func TestAllMethodsOfGmailAreKnown(t *testing.T) {
	methods := discovery(t).methods()
	uploads := 0
	for _, m := range methods {
		for _, list := range []string{gmailquota.Prices202605, gmailquota.PricesLegacy} {
			if p, err := gmailquota.PriceOf(list, m.name); err != nil || p < 1 {
				t.Errorf("%s has no price in %s: %v", m.name, list, err)
			}
		}
		for _, address := range m.urls {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(u.Path, "/upload/") {
				uploads++
			}
			if got, err := quotahttp.Method(m.verb, u); got != m.name {
				t.Errorf("%s %s is %q, %v; want %s", m.verb, address, got, err, m.name)
			}
		}
	}
	if len(methods) != 79 || uploads < 10 {
		t.Errorf("the document has %d methods and %d uploads; 79 and 12 when the table was made: compare the price list too", len(methods), uploads)
	}
}

// asked notes what a Transport asks for, and denies it.
type asked struct {
	quotahttp.Guard
	last gmailquota.Request
}

func (a *asked) Price(method string) (int64, error) {
	return gmailquota.PriceOf(gmailquota.Prices202605, method)
}

func (a *asked) Wait(_ context.Context, r gmailquota.Request, _ time.Duration) (*gmailquota.Grant, error) {
	a.last = r
	return nil, &gmailquota.DeniedError{Wait: time.Second, Bucket: gmailquota.BucketUser, Method: r.Method}
}

func (a *asked) send(t *testing.T, req *http.Request) gmailquota.Request {
	t.Helper()
	a.last = gmailquota.Request{}
	resp, err := (&quotahttp.Transport{Guard: a}).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	var denied *gmailquota.DeniedError
	if !errors.As(err, &denied) {
		t.Errorf("%s %s: %v; want it denied", req.Method, req.URL, err)
	}
	return a.last
}

// Each method asks the guard by its own name, and in a batch, at the address that the document names, for its price.
func TestEveryMethodIsAskedForAloneAndInABatch(t *testing.T) {
	doc := discovery(t)
	batch := doc.RootURL + doc.BatchPath
	guard := &asked{}
	ctx := gmailquota.WithCall(t.Context(), "a", gmailquota.Maintenance)
	var all []string
	var sum int64
	for _, m := range doc.methods() {
		price, err := guard.Price(m.name)
		if err != nil {
			t.Fatal(err)
		}
		sum += price
		all = append(all, m.verb+" "+m.urls[0])
		for _, address := range m.urls {
			req, err := http.NewRequestWithContext(ctx, m.verb, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := gmailquota.Request{Account: "a", Class: gmailquota.Maintenance, Method: m.name}
			if got := guard.send(t, req); got != want {
				t.Errorf("%s %s asks for %+v; want %+v", m.verb, address, got, want)
			}
		}
		if got := guard.send(t, batchTo(t, batch, m.verb+" "+m.urls[0])); got.Calls != 1 || got.Units != price {
			t.Errorf("a batch of one %s asks for %+v; want %d units", m.name, got, price)
		}
	}
	if got := guard.send(t, batchTo(t, batch, all...)); got.Calls != len(all) || got.Units != sum {
		t.Errorf("a batch of all methods asks for %+v; want %d calls and %d units", got, len(all), sum)
	}
}

// An unknown path is named as far as it holds words; what may be an id or an address is not.
func TestTheErrorNamesTheUnknownPath(t *testing.T) {
	for path, want := range map[string]string{
		"/gmail/v1/users/me/secrets":                       "/gmail/v1/users/me/secrets",
		"/gmail/v1/users/ann/settings/secrets/18c5a9":      "/gmail/v1/users/*/settings/secrets/*",
		"/gmail/v2/users/me/threads":                       "/gmail/*/users/me/threads",
		"/calendar/v3/calendars/ann@example.com/events":    "/calendar/*/calendars/*/events",
		"/gmail/v1/users/me/threads/18c5a9/ann%40x.org":    "/gmail/v1/users/me/threads/*/*",
		"/gmail/v1/users/me/labels/Ann.Miller/messages":    "/gmail/v1/users/me/labels/*/messages",
		"/gmail/v1/users/me/drafts/18c/AnnetteMillersLove": "/gmail/v1/users/me/drafts/*/*",
	} {
		u, err := url.Parse("https://gmail.googleapis.com" + path)
		if err != nil {
			t.Fatal(err)
		}
		var unknown *quotahttp.UnknownError
		if _, err := quotahttp.Method("GET", u); !errors.As(err, &unknown) || unknown.Path != want || unknown.Verb != "GET" {
			t.Errorf("%s: %v; want GET %s named", path, err, want)
		}
	}
}

func TestAMethodsNameIsNoID(t *testing.T) {
	for line, want := range map[string]string{
		"POST drafts/send":         "drafts.send",
		"GET messages/send":        "messages.get",
		"POST messages/import":     "messages.import",
		"GET messages/x/modify":    "",
		"DELETE messages":          "",
		"GET messages/":            "",
		"GET messages/x/":          "",
		"HEAD profile":             "",
		"GET settings":             "",
		"PUT settings/sendAs/me@x": "settings.sendAs.update",
	} {
		verb, path, _ := strings.Cut(line, " ")
		u, err := url.Parse("https://gmail.googleapis.com/gmail/v1/users/me/" + path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := quotahttp.Method(verb, u); got != want || (want == "") != (err != nil) {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}
