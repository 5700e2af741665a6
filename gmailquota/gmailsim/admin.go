package gmailsim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// MessageRef names a message. HistoryID is that of the record that added it.
type MessageRef struct {
	ID        string `json:"id"`
	ThreadID  string `json:"threadId"`
	HistoryID uint64 `json:"historyId"`
}

// Deliver puts new mail into a mailbox, as if it had just arrived; nil labels mean INBOX and UNREAD. A watch is told.
func (s *Server) Deliver(address string, raw []byte, labels ...string) (MessageRef, error) {
	return s.add(address, raw, labels, false)
}

// Load puts mail of the past into a mailbox: it leaves no history, nobody is told, and its internal date is that of its
// Date header. History ids from before it are no longer valid; so load first and sync afterwards.
func (s *Server) Load(address string, raw []byte, labels ...string) (MessageRef, error) {
	return s.add(address, raw, labels, true)
}

func (s *Server) add(address string, raw []byte, labels []string, silent bool) (MessageRef, error) {
	box, err := s.box(address)
	if err != nil {
		return MessageRef{}, err
	}
	if labels == nil {
		labels = []string{"INBOX", "UNREAD"}
	}
	c := s.contents.get(raw)
	date := s.cfg.Now()
	if silent && !c.date.IsZero() {
		date = c.date
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if err := box.checkLabels(labels); err != nil {
		return MessageRef{}, fmt.Errorf("gmailsim: %w", err)
	}
	m := box.add(addition{content: c, labels: labels, date: date, silent: silent})
	return MessageRef{m.id, m.thread.id, m.added}, nil
}

// AddLabel makes a user label, or returns the id of the one with that name.
func (s *Server) AddLabel(address, name string) (string, error) {
	box, err := s.box(address)
	if err != nil {
		return "", err
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if l := box.labelByName(name); l != nil {
		return l.ID, nil
	}
	return box.newLabel(label{Name: name}).ID, nil
}

// Label adds and removes labels of a message and returns the mailbox's history id after it.
func (s *Server) Label(address, messageID string, add, remove []string) (uint64, error) {
	return s.change(address, messageID, func(b *mailbox, m *message) error {
		if err := b.checkLabels(add, remove); err != nil {
			return err
		}
		b.relabel(m, add, remove)
		return nil
	})
}

// Trash moves a message to the trash, as a user does, and returns the mailbox's history id after it.
func (s *Server) Trash(address, messageID string) (uint64, error) {
	return s.change(address, messageID, func(b *mailbox, m *message) error { b.trash(m); return nil })
}

// Untrash takes a message out of the trash. It does not come back to the inbox by that.
func (s *Server) Untrash(address, messageID string) (uint64, error) {
	return s.change(address, messageID, func(b *mailbox, m *message) error { b.untrash(m); return nil })
}

// Delete removes a message for good.
func (s *Server) Delete(address, messageID string) (uint64, error) {
	return s.change(address, messageID, func(b *mailbox, m *message) error { b.remove(m); return nil })
}

func (s *Server) change(address, messageID string, do func(*mailbox, *message) error) (uint64, error) {
	box, err := s.box(address)
	if err != nil {
		return 0, err
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	m := box.messages[messageID]
	if m == nil {
		return 0, errors.New("gmailsim: no such message in this mailbox")
	}
	if err := do(box, m); err != nil {
		return 0, fmt.Errorf("gmailsim: %w", err)
	}
	return box.historyID, nil
}

// ExpireHistory forgets all history up to now: of the history ids so far only the current one stays valid.
func (s *Server) ExpireHistory(address string) error {
	box, err := s.box(address)
	if err != nil {
		return err
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	box.expireHistory()
	return nil
}

// Revoke takes the grant away: access tokens fail with 401, the refresh token with invalid_grant, and the watch ends.
// AddAccount gives a new grant.
func (s *Server) Revoke(address string) error {
	box, err := s.box(address)
	if err != nil {
		return err
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	box.revoked = true
	box.watch.topic, box.watch.pending = "", false
	return nil
}

// HistoryID is the mailbox's current one; 0 for an unknown address.
func (s *Server) HistoryID(address string) uint64 {
	box, err := s.box(address)
	if err != nil {
		return 0
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	return box.historyID
}

// Snapshot is a message as it is now, taken apart as format=full does.
type Snapshot struct {
	ID           string    `json:"id"`
	ThreadID     string    `json:"threadId"`
	HistoryID    uint64    `json:"historyId"`
	InternalDate time.Time `json:"internalDate"`
	Labels       []string  `json:"labels"`  // sorted
	Headers      []Header  `json:"headers"` // of the message itself
	Parts        []Part    `json:"parts"`   // all nodes of the tree, in document order
	Raw          []byte    `json:"raw,omitempty"`
}

// Part is a node of a message's MIME tree. Data is decoded from its transfer encoding, its character set as it was; a
// multipart has none.
type Part struct {
	PartID   string   `json:"partId"`
	MIMEType string   `json:"mimeType"`
	Filename string   `json:"filename"`
	Headers  []Header `json:"headers"`
	Data     []byte   `json:"data"`
}

// Mailbox returns all messages, trash and spam included, oldest first; nil for an unknown address. The slices are
// shared: do not change them.
func (s *Server) Mailbox(address string) []Snapshot {
	box, err := s.box(address)
	if err != nil {
		return nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	list := make([]Snapshot, 0, len(box.order))
	for _, m := range box.order {
		shot := Snapshot{
			ID: m.id, ThreadID: m.thread.id, HistoryID: m.historyID, InternalDate: time.UnixMilli(m.date).UTC(),
			Labels: slices.Clone(m.labels), Headers: m.root.headers, Raw: m.raw,
		}
		m.root.walk(func(p *part) {
			shot.Parts = append(shot.Parts, Part{p.id, p.mimeType, p.filename, p.headers, p.data})
		})
		list = append(list, shot)
	}
	return list
}
