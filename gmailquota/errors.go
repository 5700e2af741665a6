package gmailquota

import (
	"errors"
	"fmt"
	"time"
)

// Names of what denied a call, see DeniedError.
const (
	BucketUser           = "user"            // the user's units of a minute
	BucketProject        = "project"         // the project's units of a minute
	BucketInFlight       = "in-flight"       // too many calls of the user under way
	BucketPenaltyUser    = "penalty-user"    // Gmail refused a call of the user
	BucketPenaltyProject = "penalty-project" // Gmail refused a call for the project's sake
	BucketDay            = "day"             // the project's units of the day are used up, see Config.DailyLimit
)

// ErrNoAccount is returned for a call that names no account to charge.
var ErrNoAccount = errors.New("gmailquota: the call names no account to charge; set Request.Account, or use WithCall for an HTTP request")

// DeniedError says that a call was not admitted and not charged.
type DeniedError struct {
	// Wait is until the call's turn. Where nobody waits before it that is exact for the buckets and penalties: the same
	// request, if nobody else asks meanwhile, is denied a microsecond earlier and admitted then. Where many wait it may be
	// shorter, so that one of them looks every few seconds whether those before it do not come. For "in-flight" it is an
	// estimate of at most 250 ms.
	Wait   time.Duration
	Bucket string // one of the Bucket constants; with several, the one with the longest wait
	Method string

	ahead time.Duration // for how long it may then still have to sleep
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("gmailquota: %s denied by the %s limit, may be admitted in %v", e.Method, e.Bucket, e.Wait)
}

// UnavailableError says that Redis gave no decision and FailOpen is off: the call must not be made. Redis may have
// charged it all the same.
type UnavailableError struct {
	Wait time.Duration // until Redis is asked again
	Err  error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("gmailquota: Redis gave no decision (asked again in %v): %v", e.Wait, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// PriceError says that a call can never be admitted as it is: its method has no price, or it asks for more at once than
// a bucket holds. It is permanent.
type PriceError struct {
	Method string
	Units  int64  // asked for; 0 without a price
	Reason string // what is wrong and what to do
}

func (e *PriceError) Error() string {
	return fmt.Sprintf("gmailquota: %s can never be admitted: %s", e.Method, e.Reason)
}

// ConfigError names the field of Config that New refuses.
type ConfigError struct {
	Field, Value, Allowed string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("gmailquota: %s = %s: allowed is %s", e.Field, e.Value, e.Allowed)
}
