package modeltest

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/gmailquota"
)

var (
	errDead  = errors.New("the process is dead")
	errStore = errors.New("the store fails")
)

// process is one worker process as the outside sees it: every call of a port and every ack passes it before it has its
// effect and afterwards, and the process may die at any of these steps. From then on nothing that it does has an effect.
type process struct {
	weather *weather
	book    *book

	mu   sync.Mutex
	n    int             // steps so far
	saw  map[string]bool // the steps' names
	at   int             // dies at this step; 0: never
	dead bool
}

// step is one point at which the process may die: before or after what is named.
func (p *process) step(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.saw[name] = true
	if p.n == p.at {
		p.dead = true
	}
	if p.dead {
		return errDead
	}
	return nil
}

// dieIn lets the process die at the n-th step from now.
func (p *process) dieIn(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = p.n + n
}

// steps returns how many steps there were, and the names of all of them.
func (p *process) steps() (n int, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n, slices.Sorted(maps.Keys(p.saw))
}

func (p *process) died() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// weather says what goes wrong. Each roll depends on the seed, on what is asked for, and on how often it was asked for
// before, so that a sequence meets the same faults again whatever goroutine comes first.
type weather struct {
	seed uint64

	mu    sync.Mutex
	calm  bool
	deny  time.Time // until then the guard denies every call
	gmail int       // percent of Gmail's calls that fail
	store int       // percent of the store's calls that fail
	asked map[string]uint64
}

// roll returns the dice for the next call of this name.
func (w *weather) roll(name string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	w.asked[name]++
	return rand.New(rand.NewPCG(w.seed^h.Sum64(), w.asked[name]))
}

func (w *weather) percent(kind *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		return 0
	}
	return *kind
}

func (w *weather) denied() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		return 0
	}
	return time.Until(w.deny)
}

func (w *weather) set(change func(w *weather)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// mailboxes opens mailboxes of a process.
type mailboxes struct {
	consumers.Mailboxes
	p *process
}

// Mailbox implements consumers.Mailboxes.
func (m mailboxes) Mailbox(ctx context.Context, account string, class gmailquota.Class) (consumers.Mailbox, error) {
	box, err := m.Mailboxes.Mailbox(ctx, account, class)
	return &mailbox{box: box, p: m.p, account: account}, err
}

// mailbox is Gmail seen through a bad network and a strict guard.
type mailbox struct {
	box     consumers.Mailbox
	p       *process
	account string
}

// call makes one call of Gmail, with all that may go wrong before, while and after Gmail answers it.
func call[T any](ctx context.Context, m *mailbox, op, id string, ask func() (T, error)) (T, error) {
	var none T
	dice := m.p.weather.roll(m.account + op + id)
	if err := m.p.step("before " + op); err != nil {
		return none, err
	}
	if wait := m.p.weather.denied(); wait > 0 {
		return none, &consumers.MailboxError{Op: op, Fault: consumers.Throttled, Denied: true, Wait: wait}
	}
	fault := dice.IntN(100) < m.p.weather.percent(&m.p.weather.gmail)
	if err := sleep(ctx, time.Duration(dice.IntN(300))*time.Millisecond); err != nil {
		return none, &consumers.MailboxError{Op: op, Fault: consumers.Passing, Err: err}
	}
	if fault {
		if err := gmailFault(ctx, op, dice); err != nil {
			return none, err
		}
	}
	answer, err := ask()
	if m.p.step("after "+op) != nil {
		return none, errDead
	}
	if fault && err == nil { // Gmail has answered, and the answer does not arrive whole
		return none, &consumers.MailboxError{Op: op, Fault: consumers.Passing, Status: 200, Reason: "cut JSON"}
	}
	return answer, err
}

// gmailFault is a fault that comes instead of an answer, nil for an answer that is cut.
func gmailFault(ctx context.Context, op string, dice *rand.Rand) error {
	passing := func(status int, reason string) error {
		return &consumers.MailboxError{Op: op, Fault: consumers.Passing, Status: status, Reason: reason}
	}
	throttled := func(status int, reason string) error {
		wait := time.Duration(dice.IntN(20_000)) * time.Millisecond
		return &consumers.MailboxError{Op: op, Fault: consumers.Throttled, Wait: wait, Status: status, Reason: reason}
	}
	switch dice.IntN(8) {
	case 0:
		return throttled(429, "rateLimitExceeded")
	case 1:
		return throttled(403, "userRateLimitExceeded")
	case 2:
		return passing(401, "authError") // a token expired, and the one retry did not help
	case 3:
		return passing(503, "backendError")
	case 4:
		return passing(500, "backendError")
	case 5:
		return passing(0, "connection reset")
	case 6:
		_ = sleep(ctx, 30*time.Second)
		return passing(0, "timeout")
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Profile implements consumers.Mailbox.
func (m *mailbox) Profile(ctx context.Context) (consumers.Profile, error) {
	return call(ctx, m, consumertest.OpProfile, "", func() (consumers.Profile, error) { return m.box.Profile(ctx) })
}

// Watch implements consumers.Mailbox.
func (m *mailbox) Watch(ctx context.Context) (consumers.Watch, error) {
	return call(ctx, m, consumertest.OpWatch, "", func() (consumers.Watch, error) { return m.box.Watch(ctx) })
}

// Labels implements consumers.Mailbox.
func (m *mailbox) Labels(ctx context.Context) ([]consumers.Label, error) {
	return call(ctx, m, consumertest.OpLabels, "", func() ([]consumers.Label, error) { return m.box.Labels(ctx) })
}

// ListThreads implements consumers.Mailbox.
func (m *mailbox) ListThreads(ctx context.Context, token string) (consumers.ThreadPage, error) {
	return call(ctx, m, consumertest.OpListThreads, token, func() (consumers.ThreadPage, error) {
		return m.box.ListThreads(ctx, token)
	})
}

// GetThread implements consumers.Mailbox.
func (m *mailbox) GetThread(ctx context.Context, id string) (consumers.Thread, error) {
	t, err := call(ctx, m, consumertest.OpGetThread, id, func() (consumers.Thread, error) { return m.box.GetThread(ctx, id) })
	if err == nil {
		m.p.book.fetched(m.account, consumertest.OpGetThread, id)
	}
	return t, err
}

// ThreadOutline implements consumers.Mailbox.
func (m *mailbox) ThreadOutline(ctx context.Context, id string) (consumers.Thread, error) {
	return call(ctx, m, consumertest.OpThreadOutline, id, func() (consumers.Thread, error) { return m.box.ThreadOutline(ctx, id) })
}

// GetMessage implements consumers.Mailbox.
func (m *mailbox) GetMessage(ctx context.Context, id string) (consumers.Message, error) {
	msg, err := call(ctx, m, consumertest.OpGetMessage, id, func() (consumers.Message, error) { return m.box.GetMessage(ctx, id) })
	if err == nil {
		m.p.book.fetched(m.account, consumertest.OpGetMessage, id)
	}
	return msg, err
}

// History implements consumers.Mailbox.
func (m *mailbox) History(ctx context.Context, start consumers.HistoryID, token string) (consumers.HistoryPage, error) {
	return call(ctx, m, consumertest.OpHistory, start.String()+token, func() (consumers.HistoryPage, error) {
		return m.box.History(ctx, start, token)
	})
}
