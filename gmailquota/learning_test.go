package gmailquota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// learning is a market whose provider really gives less, and says so without a time.
func learning(t *testing.T, mode string, limit int64) *market {
	t.Helper()
	m := newMarket(3, testConfig(func(c *gmailquota.Config) { c.InFlight = 100 }))
	m.maxWait = 3 * time.Second
	m.tells = true
	m.users["user"] = []quotatest.Meter{meter(mode, limit)}
	for range 4 {
		m.add(&caller{account: "user", class: gmailquota.Backfill, prices: []int64{40, 10}, pause: always})
	}
	return m
}

// What Gmail refuses without naming a time is learned from within five minutes, and unlearned within ten.
func TestTheRealLimitIsLearned(t *testing.T) {
	for _, mode := range []string{"fixed", "sliding", "bucket"} {
		for share, least := range map[int64]float64{70: 0.90, 50: 0.90, 90: 0.85} { // what is left of the limit, in %: use of that
			t.Run(fmt.Sprintf("%s %d %%", mode, share), func(t *testing.T) {
				t.Parallel()
				limit := 6000 * share / 100
				m := learning(t, mode, limit)
				m.run(5 * time.Minute)
				m.refused = 0
				clear(m.units)
				const minutes = 20
				m.run(minutes * time.Minute)
				use := float64(m.units["user"]) / float64(minutes*limit)
				if m.refused >= minutes || use < least {
					t.Errorf("%d refusals in %d minutes, use %.3f of the real limit; want less than one a minute, and %.2f", m.refused, minutes, use, least)
				}
				m.users["user"] = []quotatest.Meter{meter(mode, 6000)} // all of it is back
				m.run(10 * time.Minute)
				m.refused = 0
				clear(m.units)
				m.run(5 * time.Minute)
				if use := float64(m.units["user"]) / (5 * 6000); m.refused > 0 || use < 0.97 {
					t.Errorf("ten minutes after the limit came back: %d refusals, use %.3f", m.refused, use)
				}
			})
		}
	}
}

func meter(mode string, limit int64) quotatest.Meter {
	switch mode {
	case "fixed":
		return &quotatest.FixedMinute{Limit: limit, Phase: 17 * time.Second}
	case "sliding":
		return &quotatest.SlidingMinute{Limit: limit}
	}
	return &quotatest.TokenBucket{Limit: limit, Capacity: limit / 10}
}
