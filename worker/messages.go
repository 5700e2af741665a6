package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
)

// Header is one header line: the name as it was written, the value as Gmail returns it.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Part is one node of a message's MIME tree, in the order of the message.
type Part struct {
	PartID   string
	MIMEType string
	Filename string
	Headers  []Header
	Data     []byte // decoded; nil for a container
	OnDemand bool   // the bytes are not in the mirror: Mirror.Attachment fetches them
}

// Attachment describes a part that is not part of the body.
type Attachment struct {
	PartID   string `json:"partId"`
	Filename string `json:"filename"`
	MIMEType string `json:"mimeType"`
	Size     int64  `json:"size"` // decoded bytes
	Inline   bool   `json:"inline"`
	File     string `json:"file,omitempty"` // where SaveAttachments put it, below its folder, with / between the names
}

// Message is a mirrored message; its JSON is one line of `gmailsync export`.
type Message struct {
	ID           string       `json:"id"`
	ThreadID     string       `json:"threadId"`
	LabelIDs     []string     `json:"labelIds"`
	HistoryID    string       `json:"historyId"`
	InternalDate time.Time    `json:"internalDate"`
	Headers      []Header     `json:"headers"`
	Text         string       `json:"text"`
	HTML         string       `json:"html"`
	Attachments  []Attachment `json:"attachments"`
	Parts        []Part       `json:"-"`
}

// EachMessage calls fn for each message that the account's mirror holds, ordered by id, and stops at its first error.
func (m *Mirror) EachMessage(ctx context.Context, account string, fn func(Message) error) error {
	return m.store.EachMessage(ctx, account, func(stored consumers.Message) error {
		msg, err := exported(stored)
		if err != nil {
			return fmt.Errorf("message %s: %w", stored.ID, err)
		}
		return fn(msg)
	})
}

// Attachment fetches the decoded bytes of one part through the guard: 40 units, one for the message that tells where
// the part is and one for the part. It waits where the guard says so.
func (m *Mirror) Attachment(ctx context.Context, account, messageID, partID string) ([]byte, error) {
	return insist(ctx, func() ([]byte, error) { return m.gmail.Attachment(ctx, account, messageID, partID) })
}

func exported(s consumers.Message) (Message, error) {
	parts, err := gmailapi.Parts(s.Raw)
	if err != nil {
		return Message{}, err
	}
	msg := Message{
		ID: s.ID, ThreadID: s.ThreadID, LabelIDs: s.Labels, HistoryID: s.HistoryID.String(), InternalDate: s.InternalDate,
		Headers: []Header{}, Text: s.Text, HTML: s.HTML, Attachments: []Attachment{},
	}
	for _, p := range parts {
		headers := make([]Header, len(p.Headers))
		for i, h := range p.Headers {
			headers[i] = Header(h)
		}
		msg.Parts = append(msg.Parts, Part{
			PartID: p.PartID, MIMEType: p.MIMEType, Filename: p.Filename, Headers: headers, Data: p.Data,
			OnDemand: p.AttachmentID != "",
		})
	}
	if len(msg.Parts) > 0 {
		msg.Headers = msg.Parts[0].Headers
	}
	for _, a := range s.Attachments {
		msg.Attachments = append(msg.Attachments, Attachment{
			PartID: a.PartID, Filename: a.Filename, MIMEType: a.MIMEType, Size: a.Size, Inline: a.Inline,
		})
	}
	return msg, nil
}
