package worker

import (
	"context"
	"net/http"

	"github.com/gmailsync/gmailsync/worker/internal/status"
)

// statusHandler serves what the worker knows of itself; no page holds an address.
func (w *Worker) statusHandler() http.Handler {
	return status.Handler(status.Source{
		Ready: func(ctx context.Context) error {
			_, err := w.mirror.store.Accounts(ctx)
			return err
		},
		Status: func(ctx context.Context) (any, error) {
			accounts, err := w.mirror.Accounts(ctx)
			for i := range accounts {
				accounts[i].Address = ""
			}
			return accounts, err
		},
		Samples: w.samples,
	})
}

// samples are the figures of /metrics.
func (w *Worker) samples() []status.Sample {
	g := w.GuardStats()
	out := []status.Sample{
		{Name: "gmailsync_guard_admitted_total", Help: "Gmail calls admitted by the guard.", Value: float64(g.Admitted)},
		{Name: "gmailsync_guard_denied_total", Help: "Gmail calls denied by the guard.", Value: float64(g.Denied)},
		{Name: "gmailsync_guard_units_total", Help: "Quota units charged.", Value: float64(g.Units)},
		{Name: "gmailsync_guard_decisions_total", Help: "Decisions that Redis gave, several in a round trip when calls ask together.", Value: float64(g.Decisions)},
		{Name: "gmailsync_guard_redis_calls_total", Help: "Round trips to Redis.", Value: float64(g.RedisCalls)},
		{Name: "gmailsync_guard_fallback_total", Help: "Decisions made without Redis.", Value: float64(g.Fallback)},
		{Name: "gmailsync_guard_unavailable_total", Help: "Decisions that Redis did not give.", Value: float64(g.Unavailable)},
	}
	for bucket, n := range w.mirror.events.refusals() {
		out = append(out, status.Sample{
			Name: "gmailsync_gmail_refused_total", Help: "Calls that Gmail refused, by what pauses for it.",
			Labels: []status.Label{{Name: "bucket", Value: bucket}}, Value: float64(n),
		})
	}
	for kind, r := range w.runners {
		s := r.Stats()
		consumer := []status.Label{{Name: "consumer", Value: string(kind)}}
		for _, f := range []struct {
			name, help string
			value      float64
		}{
			{"gmailsync_jobs_handled_total", "Calls of a consumer's handler.", float64(s.Handled)},
			{"gmailsync_jobs_requeued_total", "Jobs brought back after a denial or throttle.", float64(s.Requeued)},
			{"gmailsync_jobs_retried_total", "Jobs brought back after a failure.", float64(s.Retried)},
			{"gmailsync_jobs_dropped_total", "Jobs that became dead letters.", float64(s.Dropped)},
			{"gmailsync_jobs_postponed_total", "Waits written to the database.", float64(s.Postponed)},
			{"gmailsync_jobs_folded_total", "Deliveries that another job stood for.", float64(s.Folded)},
			{"gmailsync_jobs_waiting", "Jobs waiting for a slot or for quota.", float64(s.Ready + s.Parked)},
			{"gmailsync_jobs_working", "Jobs in a slot.", float64(s.Working)},
			{"gmailsync_jobs_oldest_seconds", "How long the oldest waiting job has waited.", s.Oldest.Seconds()},
		} {
			out = append(out, status.Sample{Name: f.name, Help: f.help, Labels: consumer, Value: f.value})
		}
	}
	if w.push != nil {
		for kind, n := range w.push.Counts() {
			out = append(out, status.Sample{
				Name: "gmailsync_push_requests_total", Help: "Requests at the push endpoint by what became of them.",
				Labels: []status.Label{{Name: "kind", Value: string(kind)}}, Value: float64(n),
			})
		}
	}
	return out
}
