package worker

// DifferenceKind says how a message of the mirror is not that of the mailbox.
type DifferenceKind string

// The kinds of difference. A message that is in another thread is missing there and extra here.
const (
	Missing    DifferenceKind = "missing"    // the mirror lacks it
	Extra      DifferenceKind = "extra"      // the mailbox lacks it
	Labels     DifferenceKind = "labels"     // it has other labels
	Content    DifferenceKind = "content"    // headers, bodies or attachments differ
	Unreadable DifferenceKind = "unreadable" // Gmail does not tell the thread whole: nothing was compared
)

// Difference is one message by which a mirror and its mailbox differ, or differed.
type Difference struct {
	ThreadID  string         `json:"threadId"`
	MessageID string         `json:"messageId,omitempty"` // empty: the whole thread
	Kind      DifferenceKind `json:"kind"`
	InFlight  bool           `json:"inFlight"` // changed after the comparison began, and not stored yet
	Repaired  bool           `json:"repaired"` // stored, or deleted, by the repair
}

// VerifyResult is how a mirror and its mailbox differ, in messages. What is in flight counts for itself only; what was
// repaired counts as what it was, too.
type VerifyResult struct {
	Account     string       `json:"account"`
	Threads     int          `json:"threads"` // compared by their history ids
	Sampled     int          `json:"sampled"` // of them, with equal ids, fetched all the same
	Fetched     int          `json:"fetched"` // threads.get calls, 40 units each
	Missing     int          `json:"missing"`
	Extra       int          `json:"extra"`
	Different   int          `json:"different"`  // other labels or content
	Unreadable  int          `json:"unreadable"` // threads
	InFlight    int          `json:"inFlight"`
	Repaired    int          `json:"repaired"`
	Differences []Difference `json:"differences"`
}

// Found counts what differs, or differed before the repair.
func (r VerifyResult) Found() int { return r.Missing + r.Extra + r.Different + r.Unreadable }

// Equal tells that no difference was found that is not repaired.
func (r VerifyResult) Equal() bool { return r.Found() == r.Repaired }

// count sums the differences up.
func (r *VerifyResult) count() {
	for _, d := range r.Differences {
		switch {
		case d.InFlight:
			r.InFlight++
			continue
		case d.Kind == Missing:
			r.Missing++
		case d.Kind == Extra:
			r.Extra++
		case d.Kind == Unreadable:
			r.Unreadable++
		default:
			r.Different++
		}
		if d.Repaired {
			r.Repaired++
		}
	}
}
