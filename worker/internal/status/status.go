// Package status serves what a worker says about itself: /healthz, /readyz, /metrics and /status.json. It only formats
// what it is given and must not know where the figures come from. Nothing that it serves holds an address.
package status

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// answerTimeout bounds what a request may ask of the store and of Redis.
const answerTimeout = 5 * time.Second

// Sample is one figure at the moment of a scrape.
type Sample struct {
	Name   string // "gmailsync_jobs_handled_total"; the ending _total makes it a counter
	Help   string
	Labels []Label
	Value  float64
}

// Label is one label of a sample.
type Label struct{ Name, Value string }

// Source is where the figures come from. All functions must be safe for concurrent use.
type Source struct {
	Ready   func(ctx context.Context) error        // nil error: the worker can work
	Status  func(ctx context.Context) (any, error) // becomes JSON
	Samples func() []Sample
}

// Handler serves a source.
func Handler(s Source) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), scrape(s.Samples))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		v, err := s.Status(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the client has gone
	})
	return mux
}

// scrape is a collector that reads its samples when it is asked; it describes none beforehand, as they vary.
type scrape func() []Sample

func (s scrape) Describe(chan<- *prometheus.Desc) {}

func (s scrape) Collect(out chan<- prometheus.Metric) {
	for _, sample := range s() {
		names, values := make([]string, len(sample.Labels)), make([]string, len(sample.Labels))
		for i, l := range sample.Labels {
			names[i], values[i] = l.Name, l.Value
		}
		kind := prometheus.GaugeValue
		if strings.HasSuffix(sample.Name, "_total") {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(sample.Name, sample.Help, names, nil)
		m, err := prometheus.NewConstMetric(desc, kind, sample.Value, values...)
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		out <- m
	}
}
