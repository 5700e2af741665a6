package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	module   = "github.com/gmailsync/gmailsync"
	adapters = "worker/internal"
	gmailAPI = "google.golang.org/api/gmail/v1"
)

// boundary says what the packages at or below one path may import of this project, beside what is below that path. A
// package belongs to the longest path that fits.
type boundary struct {
	path string
	may  []string
}

var boundaries = []boundary{
	{"cmd", []string{"worker", "configs", "gmailquota", "gmailquota/gmailsim"}},
	{"worker", []string{"configs", "consumers", "gmailquota", adapters}},
	{"consumers", []string{"gmailquota"}},
	{"gmailquota", nil},
	{"gmailquota/gmailsim", nil},
	{"configs", nil},
	// The adapters; siblings know one another only through the ports.
	{"worker/internal/broker", []string{"consumers", "gmailquota"}},
	{"worker/internal/gmailapi", []string{"consumers", "gmailquota"}},
	{"worker/internal/mailstore", []string{"consumers", "gmailquota"}},
	{"worker/internal/push", []string{"consumers", "gmailquota"}},
	{"worker/internal/status", []string{"consumers", "gmailquota"}},
	{"worker/internal/tokens", []string{"consumers", "gmailquota"}},
}

// below reports whether p is parent or a package below it.
func below(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }

// ruleOf returns the rule for package p, a path within the module.
func ruleOf(p string) (boundary, bool) {
	var found boundary
	for _, b := range boundaries {
		if below(p, b.path) && len(b.path) > len(found.path) {
			found = b
		}
	}
	return found, found.path != ""
}

// allowed reports whether package p may import the package imported.
func allowed(rule boundary, imported string) bool {
	target, ok := ruleOf(imported)
	if !ok {
		return false
	}
	if target.path == rule.path {
		return true
	}
	return slices.ContainsFunc(rule.may, func(may string) bool {
		return target.path == may || may == adapters && below(target.path, adapters)
	})
}

type listed struct {
	ImportPath string
	Imports    []string
}

// packages lists this module's packages with what they import, tests left out.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(importPath string) string { return strings.TrimPrefix(importPath, module+"/") }

func TestImportsPointInOneDirection(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages listed", len(all))
	}
	for _, p := range all {
		rule, ok := ruleOf(within(p.ImportPath))
		if !ok {
			t.Errorf("%s is in no part of the layout; give it a boundary", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if below(imported, module) && !allowed(rule, within(imported)) {
				t.Errorf("%s imports %s; %s may import only %v", within(p.ImportPath), within(imported), rule.path, rule.may)
			}
		}
	}
}

// TestOnePlaceCallsGmail: a second client would spend units that the guard knows nothing of.
func TestOnePlaceCallsGmail(t *testing.T) {
	var who []string
	for _, p := range packages(t) {
		if slices.Contains(p.Imports, gmailAPI) {
			who = append(who, within(p.ImportPath))
		}
	}
	if want := []string{path.Join(adapters, "gmailapi")}; !slices.Equal(who, want) {
		t.Errorf("%s is imported by %v, want %v", gmailAPI, who, want)
	}
}

func TestBoundariesForbid(t *testing.T) {
	for _, test := range []struct {
		from, to string
		want     bool
	}{
		{"cmd/gmailsync", "worker", true},
		{"cmd/gmailsync", "gmailquota/gmailsim", true},
		{"cmd/gmailsync", "consumers", false},
		{"worker", "worker/internal/push", true},
		{"worker", "consumers/history", true},
		{"worker", "gmailquota/gmailsim", false},
		{"worker/internal/gmailapi", "gmailquota/quotahttp", true},
		{"worker/internal/gmailapi", "worker/internal/tokens", false},
		{"worker/internal/mailstore/sqlite", "worker/internal/mailstore", true},
		{"worker/internal/push", "configs", false},
		{"consumers/history", "consumers", true},
		{"consumers", "worker", false},
		{"gmailquota/quotahttp", "gmailquota", true},
		{"gmailquota", "gmailquota/gmailsim", false},
		{"gmailquota/gmailsim", "gmailquota", false},
		{"configs", "gmailquota", false},
	} {
		rule, ok := ruleOf(test.from)
		if !ok || allowed(rule, test.to) != test.want {
			t.Errorf("%s imports %s: allowed %v, want %v", test.from, test.to, !test.want, test.want)
		}
	}
}
