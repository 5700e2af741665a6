package quotaplan_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotaplan"
)

var update = flag.Bool("update", false, "write the burst table into gmailquota's doc.go and README.md")

// row is a bucket of the table; capacity 0 follows from the burst. A burst of 0 is a Window.
type row struct{ limit, burst, capacity int64 }

var rows = []row{
	{6000, 100, 0}, {6000, 150, 0}, {6000, 240, 0}, {6000, 400, 0}, {6000, 600, 0}, {6000, 1500, 0}, {6000, 3000, 0}, {6000, 100, 6000}, {6000, 0, 0},
	{15_000, 100, 0}, {15_000, 250, 0}, {15_000, 600, 0}, {15_000, 1500, 0}, {15_000, 3000, 0}, {15_000, 100, 15_000}, {15_000, 0, 0},
}

var head = []string{"limit", "burst", "refill", "use", "fixed minutes", "sliding minute", "bucket"}

// cells are the table's rows as text. A bucket of the whole limit that refills with the whole limit is there to show why
// the guard has none.
func cells(t *testing.T) [][]string {
	t.Helper()
	var out [][]string
	for _, r := range rows {
		if r.burst == 0 {
			out = append(out, windowCells(t, r.limit))
			continue
		}
		cfg := gmailquota.DefaultConfig()
		cfg.UserLimit, cfg.UserBurst, cfg.UserCapacity, cfg.UserRefill = r.limit, r.burst, r.capacity, r.capacity
		burst, refill := r.capacity, r.capacity
		if r.capacity == 0 {
			p, err := gmailquota.Explain(r.limit, r.burst, cfg.Jitter)
			if err != nil {
				t.Fatal(err)
			}
			burst, refill = p.Burst, p.Refill
		}
		o, err := quotaplan.Worst(cfg)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, []string{
			fmt.Sprint(r.limit), fmt.Sprint(burst), fmt.Sprint(refill), fmt.Sprintf("%.1f %%", 100*o.Use),
			refusals(o.Fixed), refusals(o.Sliding), refusals(o.Bucket),
		})
	}
	return out
}

func windowCells(t *testing.T, limit int64) []string {
	t.Helper()
	cfg := gmailquota.DefaultConfig()
	cfg.UserLimit = limit
	o, err := quotaplan.WorstWindow(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return []string{fmt.Sprint(limit), "window", "-", fmt.Sprintf("%.1f %%", 100*o.Use), refusals(o.Fixed), refusals(o.Sliding), refusals(o.Bucket)}
}

// refusals is exact about none: 0 is 0, not a rounded little.
func refusals(part float64) string {
	if part == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f %%", 100*part)
}

// The table in the docs is what the simulation gives today.
func TestTheDocsHaveTheMeasuredBurstTable(t *testing.T) {
	table := cells(t)
	var markdown, comment strings.Builder
	fmt.Fprintf(&markdown, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	line := func(cells []string) {
		comment.WriteString("//\t")
		for i, c := range cells {
			fmt.Fprintf(&comment, "%*s", []int{5, 7, 8, 9, 15, 16, 10}[i], c)
		}
		comment.WriteString("\n")
	}
	line(head)
	for _, r := range table {
		fmt.Fprintf(&markdown, "| %s |\n", strings.Join(r, " | "))
		line(r)
	}
	inDocs(t, "../README.md", "<!-- burst table: made by go test ./gmailquota/quotaplan -run Docs -update -->\n", markdown.String(), "<!-- end of burst table -->\n")
	inDocs(t, "../doc.go", "//\n// # Bursts measured\n//\n", comment.String(), "//\n// Made by")
}

// inDocs holds the text of a file between two marks to what it must be, or makes it so.
func inDocs(t *testing.T, path, begin, want, end string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(data), begin)
	table, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the burst table in %s is not what is measured now; run: go test ./gmailquota/quotaplan -run Docs -update", path)
	}
}

// The default burst uses at least 97 % of the limit and no model refuses a call; a bucket of the whole limit is refused
// by all of them, or the simulation proves nothing.
func TestTheDefaultBurstIsTheMeasuredChoice(t *testing.T) {
	o, err := quotaplan.Worst(gmailquota.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if o.Use < 0.97 || o.Fixed+o.Sliding+o.Bucket > 0 {
		t.Errorf("the default fares so: %+v; want a use of at least 0.97 and no refusal", o)
	}
	cfg := gmailquota.DefaultConfig()
	cfg.UserCapacity, cfg.UserRefill = cfg.UserLimit, cfg.UserLimit
	if o, err = quotaplan.Worst(cfg); err != nil || min(o.Fixed, o.Sliding, o.Bucket) < 0.05 {
		t.Errorf("a bucket of the whole limit fares so: %+v, %v; want refusals by all", o, err)
	}
}
