package gmailquota_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func TestWhatAConfigRefusesAndSays(t *testing.T) {
	type config = gmailquota.Config
	tests := []struct {
		name   string
		change func(*config)
		field  string
		says   string
	}{
		{"defaults", func(*config) {}, "", ""},
		{"legacy", func(c *config) { c.PriceList, c.UserLimit = gmailquota.PricesLegacy, 15_000 }, "", ""},
		{"capacity by hand", func(c *config) { c.UserCapacity, c.UserRefill = 300, 5000 }, "", ""},
		{"no project", func(c *config) { c.Project = "" }, "Project", "letters"},
		{"a project that breaks the hash tag", func(c *config) { c.Project = "a}b" }, "Project", "letters"},
		{"unknown list", func(c *config) { c.PriceList = "2027" }, "PriceList", `"2026-05" or "legacy"`},
		{"unknown method", func(c *config) { c.Prices = map[string]int64{"gmail.users.Threads.get": 1} }, `Prices["gmail.users.Threads.get"]`, "did you mean threads.get?"},
		{"free method", func(c *config) { c.Prices = map[string]int64{"threads.get": 0} }, `Prices["threads.get"]`, "1 to"},
		{"no limit", func(c *config) { c.UserLimit = 0 }, "UserLimit", "1 to"},
		{"negative limit", func(c *config) { c.ProjectLimit = -1 }, "ProjectLimit", "1 to"},
		{"burst below watch", func(c *config) { c.UserBurst = 99 }, "UserBurst", "at least 100 units, the price of"},
		{"capacity below an override", func(c *config) { c.UserCapacity, c.Prices = 150, map[string]int64{"threads.get": 200} }, "UserCapacity", "at least 200 units, the price of threads.get"},
		{"burst of the whole limit", func(c *config) { c.UserBurst = 6000 }, "UserBurst", "less than the limit"},
		{"project burst below the user's", func(c *config) { c.ProjectBurst = 50 }, "ProjectBurst", "at least the user's burst"},
		{"project limit below its burst", func(c *config) { c.ProjectLimit = 100 }, "ProjectLimit", "more than the burst"},
		{"no capacity and no burst", func(c *config) { c.UserBurst = 0 }, "UserBurst", "1 to less than"},
		{"negative capacity", func(c *config) { c.UserCapacity = -1 }, "UserCapacity", "0 (not set)"},
		{"jitter", func(c *config) { c.Jitter = time.Hour }, "Jitter", "0s to 10s"},
		{"no call in flight", func(c *config) { c.InFlight = 0 }, "InFlight", "1 to 1000"},
		{"keyTTL shorter than the reservations", func(c *config) { c.KeyTTL = 31 * time.Second }, "KeyTTL", "1.02"},
		{"keyTTL shorter than a slow bucket", func(c *config) { c.UserCapacity, c.UserRefill = 200, 100 }, "KeyTTL", "2m0s in which an empty bucket fills"},
		{"keyTTL of days", func(c *config) { c.KeyTTL = 48 * time.Hour }, "KeyTTL", "24h"},
		{"no workers", func(c *config) { c.Workers = 0 }, "Workers", "1 to"},
		{"more workers than the limit feeds", func(c *config) { c.Workers = 60 }, "UserBurst", "60 workers"},
		{"no timeout", func(c *config) { c.RedisTimeout = 0 }, "RedisTimeout", "more than 0s"},
		{"negative horizon", func(c *config) { c.Horizons = map[gmailquota.Class]time.Duration{gmailquota.Realtime: -1} }, "Horizons[realtime]", "0s to 30s"},
		{"unknown class", func(c *config) { c.Horizons = map[gmailquota.Class]time.Duration{9: 1} }, "Horizons[unknown]", "a known class"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := gmailquota.DefaultConfig()
			tt.change(&cfg)
			err := cfg.Validate()
			if tt.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var ce *gmailquota.ConfigError
			if !errors.As(err, &ce) || ce.Field != tt.field || !strings.Contains(ce.Allowed, tt.says) {
				t.Errorf("%v; want field %s and %q", err, tt.field, tt.says)
			}
			if _, made := gmailquota.New(nil, cfg); made == nil {
				t.Error("New accepts it")
			}
		})
	}
}

func TestCapacityAndRefillAboveTheLimitAreAWarningWithTheArithmetic(t *testing.T) {
	cfg := gmailquota.DefaultConfig()
	if w := cfg.Warnings(); len(w) != 0 {
		t.Errorf("the defaults warn: %q", w)
	}
	cfg.UserCapacity, cfg.UserRefill = 6000, 6000
	w := cfg.Warnings()
	if len(w) != 1 || !strings.Contains(w[0], "UserCapacity 6000 + UserRefill 6000 = 12000 units in a minute, above UserLimit 6000") {
		t.Errorf("warnings %q", w)
	}
}

// developers.google.com/workspace/gmail/api/reference/quota, note dated 2026-05-01
func TestPricesOfBothLists(t *testing.T) {
	for method, want := range map[string][2]int64{ // 2026-05, legacy
		"threads.get": {40, 10}, "messages.get": {20, 5}, "messages.attachments.get": {20, 5}, "drafts.get": {20, 5},
		"messages.trash": {20, 5}, "threads.trash": {20, 20}, "threads.list": {10, 10}, "messages.list": {5, 5},
		"history.list": {2, 2}, "getProfile": {1, 1}, "watch": {100, 100}, "stop": {50, 50}, "messages.send": {100, 100},
		"labels.list": {1, 1}, "settings.getImap": {1, 1}, "settings.updateImap": {5, 5}, "settings.sendAs.create": {100, 100},
	} {
		for i, list := range []string{gmailquota.Prices202605, gmailquota.PricesLegacy} {
			if got, err := gmailquota.PriceOf(list, method); err != nil || got != want[i] {
				t.Errorf("%s in %s: %d, %v; want %d", method, list, got, err, want[i])
			}
		}
	}
	var price *gmailquota.PriceError
	if _, err := gmailquota.PriceOf(gmailquota.Prices202605, "threads.fetch"); !errors.As(err, &price) {
		t.Errorf("an unpriced method: %v; want a PriceError", err)
	}
	if _, err := gmailquota.PriceOf("old", "threads.get"); err == nil {
		t.Error("an unknown list has prices")
	}
}

func TestOverridesReplaceSinglePrices(t *testing.T) {
	cfg := gmailquota.DefaultConfig()
	cfg.Prices = map[string]int64{"threads.get": 45}
	g, err := gmailquota.New(nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int64{"threads.get": 45, "messages.get": 20} {
		if got, err := g.Price(method); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", method, got, err, want)
		}
	}
}
