package gmailsim

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault makes matching calls fail. It acts after the meter: a faulted call has cost its price.
type Fault struct {
	Method  string `json:"method,omitempty"`  // as in Stats.Calls, or "token" for the token endpoint; empty = any Gmail call
	ID      string `json:"id,omitempty"`      // of the message, thread, label or draft; empty = any
	Account string `json:"account,omitempty"` // address; empty = any
	Call    int    `json:"call,omitempty"`    // the first matching call that fails, counted from 1; 0 = 1

	Times int           `json:"times,omitempty"` // how many calls fail; 0 = one, or all where For is set; negative = all
	For   time.Duration `json:"for,omitempty"`   // nanoseconds from AddFault on; 0 = without end

	Status  int               `json:"status,omitempty"`  // 0: the call is only delayed, dropped or cut
	Reason  string            `json:"reason,omitempty"`  // for the JSON error; for "token" the error code
	Message string            `json:"message,omitempty"` // for the JSON error
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`  // instead of the JSON error, HTML unless Headers say otherwise
	Empty   bool              `json:"empty,omitempty"` // no body at all

	Delay time.Duration `json:"delay,omitempty"` // nanoseconds, before the answer
	Drop  bool          `json:"drop,omitempty"`  // close the connection without an answer; in a batch the part is missing
	Cut   bool          `json:"cut,omitempty"`   // close the connection in the middle of the real answer
}

type faults struct {
	mu   sync.Mutex
	list []*activeFault
}

type activeFault struct {
	Fault
	seen  int
	until time.Time
}

// AddFault arms a fault. Of several that match, the one added first acts.
func (s *Server) AddFault(f Fault) {
	a := &activeFault{Fault: f}
	a.Account = strings.ToLower(f.Account)
	if f.For > 0 {
		a.until = s.cfg.Now().Add(f.For)
	}
	if f.Times == 0 && f.For == 0 {
		a.Times = 1
	}
	a.Call = max(f.Call, 1)
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, a)
}

// ClearFaults disarms all faults.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
}

// match counts a call and returns the fault that it meets, or nil.
func (fs *faults) match(method, id, account string, now time.Time) *Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.list {
		if !f.until.IsZero() && now.After(f.until) || !f.matches(method, id, account) {
			continue
		}
		f.seen++
		if f.seen < f.Call {
			continue
		}
		found := f.Fault
		if f.Times > 0 && f.seen >= f.Call+f.Times-1 {
			fs.list = slices.Delete(fs.list, i, i+1)
		}
		return &found
	}
	return nil
}

func (f *Fault) matches(method, id, account string) bool {
	return (f.Method == method || f.Method == "" && method != "token") &&
		(f.ID == "" || f.ID == id) && (f.Account == "" || f.Account == account)
}

// passes tells that the call goes on to its real answer.
func (f *Fault) passes() bool { return f.Status == 0 && !f.Drop && !f.Cut }

func (f *Fault) reply() reply {
	r := reply{code: f.Status, drop: f.Drop, header: http.Header{}}
	for name, value := range f.Headers {
		r.header.Set(name, value)
	}
	switch {
	case f.Empty:
	case f.Body != "":
		r.body = []byte(f.Body)
		if r.header.Get("Content-Type") == "" {
			r.header.Set("Content-Type", "text/html; charset=UTF-8")
		}
	default:
		r.body = f.apiError().body()
	}
	return r
}

// apiError fills in what Google says with a status where the fault does not.
func (f *Fault) apiError() *apiError {
	e := &apiError{code: f.Status, domain: "global", reason: f.Reason, message: f.Message}
	byStatus := map[int]apiError{
		400: {status: "INVALID_ARGUMENT", reason: "invalidArgument"},
		401: {status: "UNAUTHENTICATED", reason: "authError"},
		403: {status: "PERMISSION_DENIED", reason: "forbidden"},
		404: {status: "NOT_FOUND", reason: "notFound", message: "Requested entity was not found."},
		429: {status: "RESOURCE_EXHAUSTED", reason: "rateLimitExceeded"},
		500: {status: "INTERNAL", reason: "backendError"},
		503: {status: "UNAVAILABLE", reason: "backendError"},
	}
	known := byStatus[f.Status]
	e.status = known.status
	if e.reason == "" {
		e.reason = known.reason
	}
	if e.message == "" {
		e.message = known.message
	}
	if e.message == "" {
		e.message = http.StatusText(f.Status)
	}
	if strings.HasSuffix(e.reason, "LimitExceeded") || e.reason == "quotaExceeded" || e.reason == "accessNotConfigured" {
		e.domain = "usageLimits"
	}
	return e
}
