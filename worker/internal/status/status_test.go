package status

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestPagesSayHowTheWorkerIs(t *testing.T) {
	notReady := errors.New("store: away")
	var ready error
	h := Handler(Source{
		Ready:  func(context.Context) error { return ready },
		Status: func(context.Context) (any, error) { return map[string]int{"accounts": 2}, nil },
		Samples: func() []Sample {
			return []Sample{
				{Name: "gmailsync_jobs_total", Help: "Jobs.", Labels: []Label{{"kind", "history"}}, Value: 3},
				{Name: "gmailsync_waiting", Help: "Waiting.", Value: 1},
			}
		},
	})
	for _, c := range []struct {
		path  string
		ready error
		code  int
		want  string
	}{
		{"/healthz", notReady, http.StatusNoContent, ""},
		{"/readyz", nil, http.StatusNoContent, ""},
		{"/readyz", notReady, http.StatusServiceUnavailable, "store: away"},
		{"/status.json", nil, http.StatusOK, `{"accounts":2}`},
		{"/metrics", nil, http.StatusOK, `gmailsync_jobs_total{kind="history"} 3`},
		{"/metrics", nil, http.StatusOK, "# TYPE gmailsync_waiting gauge"},
		{"/nothing", nil, http.StatusNotFound, ""},
	} {
		ready = c.ready
		code, body := get(t, h, c.path)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %q, want %d and %q", c.path, code, body, c.code, c.want)
		}
	}
}
