package gmailquota_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// However often an operator resets, in pauses and outside, no minute is over the limit.
func TestAResetNeverBreaksTheLimit(t *testing.T) {
	for seed := range uint64(12) {
		cfg := testConfig(func(c *gmailquota.Config) { c.InFlight, c.ProjectLimit = 40, 20_000 })
		m := newMarket(seed, cfg)
		classes := []gmailquota.Class{gmailquota.Backfill, gmailquota.Realtime, gmailquota.Maintenance}
		if seed%2 == 0 { // see Config.ProjectLimit for the others
			classes, m.cfg.ProjectLimit = classes[:1], 10_000
			m.model.Reconfigure(m.cfg)
			m.project = quotatest.Meters(m.cfg.ProjectLimit)
			m.maxWait = 400 * time.Millisecond
		}
		seen := oracle{}
		m.arrived = func(account string, units int64) { seen.note(account, m.model.Now, units) }
		for i := range 9 {
			m.add(&caller{account: fmt.Sprint("user-", i%3), class: classes[i/3%len(classes)], prices: []int64{2, 10, 40, 100}, pause: bursts})
		}
		resets := 0
		var meddle func()
		meddle = func() {
			s := gmailquota.Step{Op: "penalize", Account: fmt.Sprint("user-", m.rnd.IntN(3)), Scope: gmailquota.Scope(m.rnd.IntN(2))}
			if m.rnd.IntN(2) == 0 {
				s.Stated = m.rnd.Int64N(100_000_000)
			}
			if m.rnd.IntN(2) == 0 {
				s.Op, s.Stated = "reset", 0
				resets++
			}
			m.model.Do(s)
			m.at(m.model.Now+m.rnd.Int64N(20_000_000), meddle)
		}
		m.at(m.model.Now, meddle)
		m.run(40 * time.Minute)
		if m.refused > 0 || resets < 50 {
			t.Errorf("seed %d: %d refusals, with %d resets", seed, m.refused, resets)
		}
		for account := range m.units {
			if most := seen.most(account); most > cfg.UserLimit {
				t.Errorf("seed %d: a minute of %s had %d units", seed, account, most)
			}
		}
	}
}

// Without Redis nothing can be reset, and the error says so.
func TestAResetWithoutRedisFails(t *testing.T) {
	server := miniredis.RunT(t)
	g, err := gmailquota.New(quotatest.Client(t, server.Addr()), testConfig())
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	for _, account := range []string{"a", ""} {
		if err := g.Reset(context.Background(), account); err == nil {
			t.Errorf("the reset of %q is said to have worked", account)
		}
	}
}
