package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// An outage of Redis is said once at its start and once at its end, however many calls it meets; refusals are counted.
func TestTheGuardsTroublesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		events := newGuardEvents(zap.New(core))
		down := errors.New("connection refused")
		for range 3 {
			events.observe(gmailquota.Event{Kind: gmailquota.Fallback, Err: down})
			events.observe(gmailquota.Event{Kind: gmailquota.Admitted}) // by the local buckets
			time.Sleep(5 * time.Second)
		}
		events.observe(gmailquota.Event{Kind: gmailquota.Admitted})
		events.observe(gmailquota.Event{Kind: gmailquota.Denied})
		events.observe(gmailquota.Event{Kind: gmailquota.Refused, Bucket: "penalty-user", Reason: "rateLimitExceeded"})
		var said []string
		for _, e := range logs.All() {
			said = append(said, e.Message)
		}
		want := []string{"Redis gives no decisions", "Redis decides again", "Gmail refused a call, others wait"}
		if len(said) != len(want) || said[0] != want[0] || said[1] != want[1] || said[2] != want[2] {
			t.Errorf("said %q, want %q", said, want)
		}
		if events.refusals()["penalty-user"] != 1 {
			t.Errorf("refusals %v", events.refusals())
		}
	})
}
