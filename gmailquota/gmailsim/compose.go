package gmailsim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"
	"time"
)

// newMessage is the message resource as insert, import, send and drafts take it; other fields are ignored there.
type newMessage struct {
	Raw      string   `json:"raw"`
	ThreadID string   `json:"threadId"`
	LabelIDs []string `json:"labelIds"`

	ID           string          `json:"id"`
	Snippet      string          `json:"snippet"`
	Payload      json.RawMessage `json:"payload"`
	SizeEstimate int64           `json:"sizeEstimate"`
	HistoryID    string          `json:"historyId"`
	InternalDate string          `json:"internalDate"`
}

// anyAlphabet lets both forms of base64 pass, as Google's JSON reader does.
var anyAlphabet = strings.NewReplacer("+", "-", "/", "_")

// compose reads a new message from the body: JSON with the raw message in base64url, or an upload. into is the JSON
// resource that holds msg.
func (c *call) compose(into any, msg *newMessage) ([]byte, error) {
	if !c.upload {
		if err := c.decode(into); err != nil {
			return nil, err
		}
		if msg.Raw == "" {
			return nil, badRequest("'raw' RFC822 payload message string or uploading message via /upload/* URL required")
		}
		raw, err := base64.RawURLEncoding.DecodeString(anyAlphabet.Replace(strings.TrimRight(msg.Raw, "=")))
		if err != nil {
			return nil, badRequest("Invalid value at 'message.raw' (TYPE_BYTES), Base64 decoding failed")
		}
		return raw, nil
	}
	media, params, err := mime.ParseMediaType(c.media)
	if err != nil {
		return nil, badRequest("Media type is missing or cannot be read")
	}
	if media == "message/rfc822" {
		return c.body, nil
	}
	if media != "multipart/related" {
		return nil, badRequest("Media type '%s' is not supported. Valid media types: [message/rfc822]", media)
	}
	return c.composeRelated(params["boundary"], into)
}

// composeRelated reads an upload of two parts: the resource and the message.
func (c *call) composeRelated(boundary string, into any) ([]byte, error) {
	reader := multipart.NewReader(bytes.NewReader(c.body), boundary)
	var parts [][]byte
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			var data []byte
			if data, err = io.ReadAll(p); err == nil {
				parts = append(parts, data)
			}
		}
		if err != nil {
			return nil, badRequest("The multipart upload cannot be read")
		}
	}
	if len(parts) != 2 {
		return nil, badRequest("The multipart upload has %d parts: want the resource and the message", len(parts))
	}
	c.body = parts[0]
	return parts[1], c.decode(into)
}

// threadFor returns the thread that a new message names. It joins only with the thread's subject.
func (b *mailbox) threadFor(id string, c *content) (*thread, error) {
	if id == "" {
		return nil, nil
	}
	if !validID(id) {
		return nil, badRequest("Invalid thread id value")
	}
	t, err := b.thread(id)
	if err != nil {
		return nil, err
	}
	if t.subject != c.subject {
		return nil, nil
	}
	return t, nil
}

// insertMessage answers messages.insert and messages.import; both put a message into the mailbox as it is.
func insertMessage(c *call) (any, error) {
	var msg newMessage
	raw, err := c.compose(&msg, &msg)
	if err != nil {
		return nil, err
	}
	content := c.s.contents.get(raw)
	date := c.s.cfg.Now()
	// Google's defaults differ: insert takes the time of receipt, import the Date header.
	source := c.query.Get("internalDateSource")
	if source == "dateHeader" || source == "" && c.to.method == "messages.import" {
		if !content.date.IsZero() {
			date = content.date
		}
	}
	return c.store(content, msg, date, msg.LabelIDs)
}

func (c *call) store(content *content, msg newMessage, date time.Time, labels []string) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkLabels(labels); err != nil {
		return nil, err
	}
	t, err := b.threadFor(msg.ThreadID, content)
	if err != nil {
		return nil, err
	}
	m := b.add(addition{content: content, labels: labels, date: date, thread: t})
	return b.answer(m), nil
}

// answer is what insert and send return.
func (b *mailbox) answer(m *message) historyMessage {
	return historyMessage{ID: m.id, ThreadID: m.thread.id, LabelIDs: m.labels}
}

func sendMessage(c *call) (any, error) {
	var msg newMessage
	raw, err := c.compose(&msg, &msg)
	if err != nil {
		return nil, err
	}
	content := c.s.contents.get(raw)
	self, others, err := c.recipients(content)
	if err != nil {
		return nil, err
	}
	labels := []string{"SENT"}
	if self {
		labels = append(labels, "INBOX", "UNREAD")
	}
	sent, err := c.store(content, msg, c.s.cfg.Now(), labels)
	if err != nil {
		return nil, err
	}
	return sent, c.deliverTo(others, raw)
}

// recipients tells whether mail goes to the sender, and to which other accounts of the simulator.
func (c *call) recipients(content *content) (self bool, others []string, err error) {
	count := 0
	for _, name := range []string{"To", "Cc", "Bcc"} {
		value := headerValue(content.root.headers, name)
		if value == "" {
			continue
		}
		list, err := mail.ParseAddressList(value)
		if err != nil {
			return false, nil, badRequest("Invalid %s header", name)
		}
		count += len(list)
		for _, a := range list {
			address := strings.ToLower(a.Address)
			switch {
			case address == c.box.address:
				self = true
			case !slices.Contains(others, address):
				others = append(others, address)
			}
		}
	}
	if count == 0 {
		return false, nil, badRequest("Recipient address required")
	}
	return self, others, nil
}

// deliverTo delivers to those addresses that are accounts here; mail to others goes nowhere.
func (c *call) deliverTo(addresses []string, raw []byte) error {
	for _, address := range addresses {
		if _, err := c.s.box(address); err != nil {
			continue
		}
		if _, err := c.s.Deliver(address, raw); err != nil {
			return err
		}
	}
	return nil
}
