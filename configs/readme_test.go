package configs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of settings into README.md")

const (
	tableBegin = "<!-- settings: made by go test ./configs -run README -update -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

// TestREADMEListsEverySetting: the table of settings in README.md says what the comments in config.go say.
func TestREADMEListsEverySetting(t *testing.T) {
	path := filepath.Join("..", "README.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(data), tableBegin)
	table, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		t.Fatalf("README.md has no table between %q and %q", tableBegin, tableEnd)
	}
	want := settingsTable(fieldComments(t))
	if *update {
		if err := os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Error("the table of settings in README.md differs from config.go; run: go test ./configs -run README -update")
	}
}

func settingsTable(comments map[string]string) string {
	escape := strings.NewReplacer("<", "&lt;", "|", `\|`, "\n", " ")
	var b strings.Builder
	b.WriteString("| key | meaning |\n|---|---|\n")
	for _, k := range allKeys {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.path(), escape.Replace(comments[k.path()]))
	}
	return b.String()
}
