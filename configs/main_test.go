package configs

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// differing names the settings in which a and b differ, in the order of Config.
func differing(a, b Config) []string {
	var out []string
	for _, k := range allKeys {
		if fmt.Sprint(k.field(&a)) != fmt.Sprint(k.field(&b)) {
			out = append(out, k.path())
		}
	}
	return out
}
