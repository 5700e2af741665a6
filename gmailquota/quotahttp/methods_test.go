package quotahttp_test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotahttp"
)

type resource struct {
	Methods map[string]struct {
		ID, HTTPMethod, Path string
		MediaUpload          struct {
			Protocols map[string]struct{ Path string }
		}
	}
	Resources map[string]resource
}

// discovery is Gmail's own description, which ships with its Go client.
func discovery(t *testing.T) resource {
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
	var doc resource
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

var parameter = regexp.MustCompile(`\{\+?[A-Za-z]+\}`)

// All methods of the discovery document have a price and are recognized by verb and path, uploads included.
func TestAllMethodsOfGmailAreKnown(t *testing.T) {
	methods := 0
	var walk func(resource)
	walk = func(r resource) {
		for _, m := range r.Methods {
			methods++
			name := strings.TrimPrefix(m.ID, "gmail.users.")
			for _, list := range []string{gmailquota.Prices202605, gmailquota.PricesLegacy} {
				if p, err := gmailquota.PriceOf(list, name); err != nil || p < 1 {
					t.Errorf("%s has no price in %s: %v", name, list, err)
				}
			}
			paths := []string{"/" + m.Path, "/some/proxy/" + m.Path}
			for _, p := range m.MediaUpload.Protocols {
				paths = append(paths, p.Path)
			}
			for _, p := range paths {
				// an id that looks like a path
				u, err := url.Parse("https://gmail.googleapis.com" + parameter.ReplaceAllString(p, "send%2F..%3Aenable") + "?alt=json")
				if err != nil {
					t.Fatal(err)
				}
				if got, err := quotahttp.Method(m.HTTPMethod, u); got != name {
					t.Errorf("%s %s is %q, %v; want %s", m.HTTPMethod, p, got, err, name)
				}
			}
		}
		for _, s := range r.Resources {
			walk(s)
		}
	}
	walk(discovery(t))
	if methods != 79 {
		t.Errorf("the document has %d methods, 79 when the table was made: compare the price list too", methods)
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
