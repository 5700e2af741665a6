package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

// maxBody is the size limit of a request. A notification is below 1 kB; Pub/Sub's own limit is 10 MB.
const maxBody = 64 << 10

// Accounts finds the account of an address. It returns consumers.ErrNoAccount for an unknown one.
type Accounts interface {
	AccountByAddress(ctx context.Context, address string) (consumers.Account, error)
}

// Config says whose notifications are accepted. All of it is required: without it anybody could send some.
type Config struct {
	Audience       string
	ServiceAccount string
	CertsURL       string            // of Google's keys; cached as long as their answer allows
	HTTP           http.RoundTripper // fetches the keys; nil: as http.DefaultTransport
}

// Kind says what became of a request.
type Kind string

// The kinds. Everything but Failed and Refused is acknowledged: Pub/Sub would deliver it again for ever, and again would
// change nothing.
const (
	Accepted  Kind = "accepted"  // a history job is in the queue
	Stale     Kind = "stale"     // of a change that is stored already
	Unknown   Kind = "unknown"   // of an address that no account has
	Idle      Kind = "idle"      // of an account that waits for somebody to act
	Malformed Kind = "malformed" // no notification
	Failed    Kind = "failed"    // store, queue or Google's keys away, or a body cut off: Pub/Sub delivers it again
	Refused   Kind = "refused"   // not proven to come from the subscription
)

// Handler answers Pub/Sub's requests: 204 acknowledges, 401 and 403 refuse who cannot prove to be the configured service
// account, 503 asks for another delivery. Safe for concurrent use.
type Handler struct {
	verifier *verifier
	accounts Accounts
	queue    consumers.Queue
	log      *zap.Logger

	mu     sync.Mutex
	counts map[Kind]int64
}

// New returns a handler, or an error that names what is missing in cfg.
func New(ctx context.Context, cfg Config, accounts Accounts, queue consumers.Queue, log *zap.Logger) (*Handler, error) {
	if cfg.Audience == "" || cfg.ServiceAccount == "" {
		return nil, errors.New("push: audience and service account are required: without them anybody could send notifications")
	}
	v, err := newVerifier(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Handler{verifier: v, accounts: accounts, queue: queue, log: log, counts: map[Kind]int64{}}, nil
}

// Counts returns how many requests of each kind there were.
func (h *Handler) Counts() map[Kind]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[Kind]int64, len(h.counts))
	for k, n := range h.counts {
		out[k] = n
	}
	return out
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}
	if err := h.verifier.check(r); err != nil {
		h.refuse(w, err)
		return
	}
	kind, err := h.accept(w, r)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.count(kind)
	w.WriteHeader(http.StatusNoContent)
}

// refuse answers a request that is not proven. Where Google's keys are away it may well be good.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	var away *keysError
	if errors.As(err, &away) {
		h.fail(w, err)
		return
	}
	h.count(Refused)
	h.log.Warn("push refused", zap.Error(err))
	status := http.StatusForbidden
	if errors.Is(err, errNoToken) {
		status = http.StatusUnauthorized
	}
	http.Error(w, http.StatusText(status), status)
}

// fail asks for another delivery.
func (h *Handler) fail(w http.ResponseWriter, err error) {
	h.count(Failed)
	h.log.Error("push not taken, it will be delivered again", zap.Error(err))
	http.Error(w, "try again", http.StatusServiceUnavailable)
}

// accept works on a proven request. An error is passing: another delivery may be taken.
func (h *Handler) accept(w http.ResponseWriter, r *http.Request) (Kind, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return Malformed, nil // another delivery would be the same
	case err != nil:
		return Failed, fmt.Errorf("read the body: %w", err)
	}
	n, err := parse(body)
	if err != nil {
		return Malformed, nil //nolint:nilerr // acknowledged and counted
	}
	account, err := h.accounts.AccountByAddress(r.Context(), n.address)
	switch {
	case errors.Is(err, consumers.ErrNoAccount):
		return Unknown, nil
	case err != nil:
		return Failed, fmt.Errorf("find the account: %w", err)
	case !account.State.Active():
		return Idle, nil
	case n.noticed <= account.Cursor:
		return Stale, nil
	}
	job := consumers.Job{Kind: consumers.History, Account: account.ID, At: time.Now()}
	if err := h.queue.Publish(r.Context(), job); err != nil {
		return Failed, err
	}
	return Accepted, nil
}

func (h *Handler) count(k Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[k]++
}
