package consumers

import (
	"fmt"
	"strconv"
	"time"
)

// HistoryID is a point in a mailbox's history: an unsigned 64-bit number that only grows. Gmail's REST API writes it
// as a string, push notifications as a number. Zero means "none yet". Compare as numbers, never as text.
type HistoryID uint64

// ParseHistoryID reads the decimal form.
func ParseHistoryID(s string) (HistoryID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("history id %q: want an unsigned 64-bit number", s)
	}
	return HistoryID(n), nil
}

func (h HistoryID) String() string { return strconv.FormatUint(uint64(h), 10) }

// Profile is what users.getProfile tells. HistoryID is the baseline of a sync run when it is read before listing.
type Profile struct {
	Address   string
	HistoryID HistoryID
	Messages  int64
	Threads   int64
}

// Watch is the answer of users.watch. It lasts seven days.
type Watch struct {
	HistoryID HistoryID
	Expires   time.Time
}

// ThreadRef is one row of threads.list.
type ThreadRef struct {
	ID        string
	HistoryID HistoryID
}

// ThreadPage is one page of threads.list. An empty Next ends the listing, nothing else does:
// a page may be empty and still have a Next.
type ThreadPage struct {
	Threads []ThreadRef
	Next    string
}

// Thread is a whole thread as it stood at HistoryID.
type Thread struct {
	ID        string
	HistoryID HistoryID
	Messages  []Message
	// Outline: the messages have ids, history ids and labels only. What belongs to them is stored already, message by
	// message, and storing the outline tells which of the thread's messages there are.
	Outline bool
	// Unreadable counts messages that an outline lacks because the answer does not even tell their ids.
	Unreadable int
}

// Message is a message as Gmail returned it, with the columns that people query decoded. All text is valid UTF-8
// without NUL.
type Message struct {
	ID           string
	ThreadID     string
	HistoryID    HistoryID // the last history record that changed this message
	InternalDate time.Time // millisecond precision
	Size         int64     // Gmail's estimate, bytes
	Labels       []string  // label ids, sorted
	Snippet      string
	RFCMessageID string // the Message-ID header, without angle brackets
	From         string // decoded header text
	To           string
	Cc           string
	Subject      string
	Date         time.Time // the Date header; zero if absent or unreadable
	Text         string    // the body's text/plain parts
	HTML         string    // the body's text/html parts
	Cleaned      bool      // some text had bytes that could not be decoded; they were replaced
	BodyMissing  bool      // a body part was left out: nested too deep or not to be fetched
	Attachments  []Attachment
	Raw          []byte // the message resource as JSON, all that Gmail returned
}

// Attachment is a part that is not part of the body. Its key is (message id, part id): Gmail's attachment ids differ
// from fetch to fetch.
type Attachment struct {
	PartID    string
	Filename  string
	MIMEType  string
	ContentID string
	Inline    bool
	Size      int64 // decoded bytes
}

// Label is one row of labels.list.
type Label struct {
	ID   string
	Name string
	Type string // "system" or "user"
}

// ChangeKind says what a history record did.
type ChangeKind string

// The four kinds of history.list, in the spelling of its answer.
const (
	MessageAdded   ChangeKind = "messagesAdded"
	MessageDeleted ChangeKind = "messagesDeleted"
	LabelsAdded    ChangeKind = "labelsAdded"
	LabelsRemoved  ChangeKind = "labelsRemoved"
)

// Change is one effect of one history record on one message.
type Change struct {
	HistoryID HistoryID // of the record
	Kind      ChangeKind
	MessageID string
	ThreadID  string
	Labels    []string // the labels added or removed; empty for the other kinds
}

// HistoryPage is one page of history.list: the changes strictly after the asked id, oldest first. A page may have no
// changes and still a Next. Current is the mailbox's own history id: the next cursor once the last page is applied.
type HistoryPage struct {
	Changes []Change
	Next    string
	Current HistoryID
}
