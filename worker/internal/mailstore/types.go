package mailstore

import "github.com/gmailsync/gmailsync/consumers"

// MessageRef is what a comparison with the mailbox needs to know of a live message.
type MessageRef struct {
	ID        string
	ThreadID  string
	HistoryID consumers.HistoryID
	Labels    []string // label ids, sorted
}

// Counts are the live rows of one account.
type Counts struct {
	Threads  int64
	Messages int64
}
