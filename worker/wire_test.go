package worker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
)

// configs does not know Gmail's methods. What only the guard can refuse is said as any wrong setting is, and before there
// is a store.
func TestWhatTheGuardRefusesIsAWrongSetting(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*configs.Config)
		key    string
		value  string
	}{
		"a method that does not exist": {func(c *configs.Config) { c.Guard.Prices = map[string]int64{"thread.get": 40} }, "guard.prices.thread.get", "40"},
		"a capacity below a price":     {func(c *configs.Config) { c.Guard.PerUserCapacityUnits = 5 }, "guard.perUserCapacityUnits", "5"},
		"a refill":                     {func(c *configs.Config) { c.Guard.PerUserRefillUnitsPerMinute = -1 }, "guard.perUserRefillUnitsPerMinute", "-1"},
		"the timeout":                  {func(c *configs.Config) { c.Redis.Timeout = -1 }, "redis.timeout", "-1ns"},
		"a parameter of the Redis URL": {
			func(c *configs.Config) { c.Redis.URL = "redis://u:p@h:1?pool_sise=3" }, "redis.url", "redis://h:1 (unexpected option: pool_sise)"},
		"another field": {func(c *configs.Config) { c.Guard.KeyTTL = 1 }, "guard.keyTTL", "1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configs.Default()
			cfg.Store.Path = filepath.Join(t.TempDir(), "mirror.db")
			c.change(&cfg)
			_, ofWorker := New(t.Context(), cfg)
			_, ofMirror := CreateMirror(t.Context(), cfg, zap.NewNop())
			for _, err := range []error{ofWorker, ofMirror} {
				var wrong *configs.Error
				if !errors.As(err, &wrong) || wrong.Key != c.key || wrong.Value != c.value || wrong.Allowed == "" {
					t.Errorf("%v; want %s = %s", err, c.key, c.value)
				}
			}
			if files, err := os.ReadDir(filepath.Dir(cfg.Store.Path)); err != nil || len(files) > 0 {
				t.Errorf("%v, %v; want no file", files, err)
			}
		})
	}
}
