package gmailsim

import (
	"encoding/json"
	"net/http"
	"time"
)

// addControl serves /_sim/: what the Go methods do, for other programs. Requests and answers are JSON.
func (s *Server) addControl(mux *http.ServeMux) {
	mux.HandleFunc("GET /_sim/stats", func(w http.ResponseWriter, r *http.Request) {
		stats := s.Stats()
		answerJSON(w, http.StatusOK, struct {
			Stats
			Gets map[string]map[string]int `json:"gets,omitempty"`
		}{stats, pick(r.URL.Query().Has("gets"), stats.Gets)})
	})
	mux.HandleFunc("GET /_sim/accounts", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, s.Accounts())
	})
	mux.HandleFunc("GET /_sim/mailbox", s.controlMailbox)
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		answerJSON(w, http.StatusOK, map[string]any{})
	})
	for name, do := range map[string]func(controlRequest) (any, error){
		"accounts": func(q controlRequest) (any, error) { return s.AddAccount(q.Address), nil },
		"deliver":  func(q controlRequest) (any, error) { return s.Deliver(q.Address, q.Raw, q.Labels...) },
		"load":     func(q controlRequest) (any, error) { return s.Load(q.Address, q.Raw, q.Labels...) },
		"label":    func(q controlRequest) (any, error) { return historyAnswer(s.Label(q.Address, q.ID, q.Add, q.Remove)) },
		"trash":    func(q controlRequest) (any, error) { return historyAnswer(s.Trash(q.Address, q.ID)) },
		"untrash":  func(q controlRequest) (any, error) { return historyAnswer(s.Untrash(q.Address, q.ID)) },
		"delete":   func(q controlRequest) (any, error) { return historyAnswer(s.Delete(q.Address, q.ID)) },
		"expire-history": func(q controlRequest) (any, error) {
			return map[string]any{}, s.ExpireHistory(q.Address)
		},
		"revoke": func(q controlRequest) (any, error) { return map[string]any{}, s.Revoke(q.Address) },
		"faults": func(q controlRequest) (any, error) { s.AddFault(q.fault()); return map[string]any{}, nil },
	} {
		mux.HandleFunc("POST /_sim/"+name, control(do))
	}
}

// controlRequest holds the parameters of all control calls.
type controlRequest struct {
	Address string   `json:"address"`
	ID      string   `json:"id"`     // of a message
	Raw     []byte   `json:"raw"`    // base64
	Labels  []string `json:"labels"` // absent: INBOX and UNREAD
	Add     []string `json:"add"`
	Remove  []string `json:"remove"`

	Method  string            `json:"method"`
	Account string            `json:"account"`
	Call    int               `json:"call"`
	Times   int               `json:"times"`
	ForMS   int64             `json:"for_ms"`
	Status  int               `json:"status"`
	Reason  string            `json:"reason"`
	Message string            `json:"message"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Empty   bool              `json:"empty"`
	DelayMS int64             `json:"delay_ms"`
	Drop    bool              `json:"drop"`
	Cut     bool              `json:"cut"`
}

func (q controlRequest) fault() Fault {
	return Fault{
		Method: q.Method, ID: q.ID, Account: q.Account, Call: q.Call, Times: q.Times,
		For: time.Duration(q.ForMS) * time.Millisecond, Status: q.Status, Reason: q.Reason, Message: q.Message,
		Headers: q.Headers, Body: q.Body, Empty: q.Empty, Delay: time.Duration(q.DelayMS) * time.Millisecond,
		Drop: q.Drop, Cut: q.Cut,
	}
}

func control(do func(controlRequest) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q controlRequest
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			answerJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		answer, err := do(q)
		if err != nil {
			answerJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		answerJSON(w, http.StatusOK, answer)
	}
}

func historyAnswer(id uint64, err error) (any, error) {
	return map[string]uint64{"historyId": id}, err
}

// controlMailbox answers with Snapshots; raw bytes only with raw=1.
func (s *Server) controlMailbox(w http.ResponseWriter, r *http.Request) {
	address := r.URL.Query().Get("address")
	if _, err := s.box(address); err != nil {
		answerJSON(w, http.StatusNotFound, map[string]string{"error": err.Error()})
		return
	}
	list := s.Mailbox(address)
	if !r.URL.Query().Has("raw") {
		for i := range list {
			list[i].Raw = nil
		}
	}
	answerJSON(w, http.StatusOK, list)
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that went away misses its answer
}

func pick[T any](keep bool, v T) T {
	if keep {
		return v
	}
	var zero T
	return zero
}
