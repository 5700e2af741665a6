package consumers

import (
	"errors"
	"fmt"
	"time"
)

// Fault is the recovery class of a failed Gmail call.
type Fault uint8

const (
	// Passing means: try again with backoff (5xx, dropped connection, cut body, unreadable 403).
	Passing Fault = iota
	// Throttled means: the guard denied the call or Gmail refused it; come back after Wait. Never an attempt.
	Throttled
	// Gone means: the thread, message or history id does not exist (404).
	Gone
	// AccountFault means: nothing works for this account until somebody acts (grant revoked, no mailbox, permission).
	AccountFault
	// Permanent means: this call can never succeed (400, a price above the bucket's capacity).
	Permanent
)

func (f Fault) String() string {
	return [...]string{"passing", "throttled", "gone", "account fault", "permanent"}[f]
}

// MailboxError is the error of every Mailbox call. It holds no address, token, subject or body.
type MailboxError struct {
	Op     string // Gmail's method name, "threads.get"
	Fault  Fault
	Wait   time.Duration // Throttled: until the call may be admitted
	Denied bool          // Throttled: the guard denied, nothing reached Gmail
	State  State         // AccountFault: the state that the account goes to
	Status int           // HTTP status, 0 if there was none
	Reason string        // Gmail's reason, "rateLimitExceeded"
	Err    error
}

func (e *MailboxError) Error() string {
	s := e.Op + ": " + e.Fault.String()
	if e.Status != 0 {
		s += fmt.Sprintf(" (%d %s)", e.Status, e.Reason)
	} else if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *MailboxError) Unwrap() error { return e.Err }

// FaultOf tells the recovery class of err; an error that is no MailboxError is Passing.
func FaultOf(err error) Fault {
	var me *MailboxError
	if errors.As(err, &me) {
		return me.Fault
	}
	return Passing
}

// WaitOf tells how long a Throttled err asks to wait, and whether it is one.
func WaitOf(err error) (time.Duration, bool) {
	var me *MailboxError
	if errors.As(err, &me) && me.Fault == Throttled {
		return me.Wait, true
	}
	return 0, false
}

// ErrLargeThread is in the error of a GetThread whose answer is too large to be held, or has a message in it that cannot be
// read and would keep the others from being stored: take the thread's outline, and each
// message on its own.
var ErrLargeThread = errors.New("the thread cannot be had in one piece")

// Errors of the Store.
var (
	ErrNoAccount = errors.New("no such account")
	ErrNoRun     = errors.New("no such sync run")
	ErrOvertaken = errors.New("a resync has overtaken this history step")
)
