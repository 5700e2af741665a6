package consumers

import "time"

// Verdict is what the runner does with a handled job.
type Verdict uint8

const (
	// VerdictDone acknowledges: the work is done, or the database holds what is left of it.
	VerdictDone Verdict = iota
	// VerdictRequeue brings the job back after the outcome's delay. It is no attempt.
	VerdictRequeue
	// VerdictRetry brings it back after a growing backoff; one whose cause no later try mends becomes a dead letter.
	VerdictRetry
)

// Outcome is the result of handling one job.
type Outcome struct {
	Verdict Verdict
	After   time.Duration // VerdictRequeue
	Cause   error         // all but VerdictDone
}

// Done acknowledges the job.
func Done() Outcome { return Outcome{} }

// RequeueAfter brings the job back after d, without counting an attempt.
func RequeueAfter(d time.Duration, cause error) Outcome {
	return Outcome{Verdict: VerdictRequeue, After: d, Cause: cause}
}

// Yield puts the job behind the account's other jobs, so that a long piece of work does not keep its slot. What is done
// so far is stored.
func Yield() Outcome { return Outcome{Verdict: VerdictRequeue} }

// Retry brings the job back after the runner's backoff.
func Retry(cause error) Outcome { return Outcome{Verdict: VerdictRetry, Cause: cause} }
