package gmailapi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"net/mail"
	"slices"
	"strings"
	"time"

	json "github.com/go-json-experiment/json/v1" // encoding/json's meaning at half its time
	"google.golang.org/api/gmail/v1"

	"github.com/gmailsync/gmailsync/consumers"
)

// textLimit is how much body text a message keeps in its columns, bytes. Gmail allows messages of 50 MB; a body beyond
// this is a log or a dump, and stays available as a part.
const textLimit = 8 << 20

// decodedThread is an answer of threads.get.
type decodedThread struct {
	id        string
	historyID consumers.HistoryID
	messages  []decoded
	// unreadable counts the members that are no message resource.
	unreadable int
}

// elsewhere is how much text has to be fetched, bytes.
func (t *decodedThread) elsewhere() (sum int64) {
	for i := range t.messages {
		sum += t.messages[i].missing()
	}
	return sum
}

// decoded is a message whose text may be incomplete.
type decoded struct {
	message    consumers.Message
	text, html strings.Builder
	elsewhere  []elsewhere
}

// elsewhere is body text that has to be fetched.
type elsewhere struct {
	attachmentID, mimeType, contentType string
	size                                int64 // as the message says, bytes
}

// missing is how much text of the message has to be fetched, bytes.
func (d *decoded) missing() (sum int64) {
	for _, t := range d.elsewhere {
		sum += t.size
	}
	return sum
}

// threadResource is a thread whose messages are not looked at yet.
type threadResource struct {
	ID        string            `json:"id"`
	HistoryID uint64            `json:"historyId,string"`
	Messages  []json.RawMessage `json:"messages"`
}

func readThread(id string, body []byte) (threadResource, error) {
	var t threadResource
	if err := json.Unmarshal(body, &t); err != nil {
		return t, fmt.Errorf("%w: thread: %w", errAnswer, err)
	}
	if t.ID != id || len(t.Messages) == 0 {
		return t, fmt.Errorf("%w: another thread, or one without messages", errAnswer)
	}
	return t, nil
}

// decodeThread counts what is no message resource and goes on with the others.
func decodeThread(id string, body []byte) (decodedThread, error) {
	t, err := readThread(id, body)
	if err != nil {
		return decodedThread{}, err
	}
	d := decodedThread{id: t.ID, historyID: consumers.HistoryID(t.HistoryID)}
	for _, raw := range t.Messages {
		var m decoded
		if m.decode(raw) != nil {
			d.unreadable++
			continue
		}
		d.messages = append(d.messages, m)
	}
	return d, nil
}

// decodeOutline takes from each message what it can: the message's own fetch tells whether it is any good.
func decodeOutline(id string, body []byte) (consumers.Thread, error) {
	t, err := readThread(id, body)
	if err != nil {
		return consumers.Thread{}, err
	}
	outline := consumers.Thread{ID: t.ID, HistoryID: consumers.HistoryID(t.HistoryID), Outline: true}
	for _, raw := range t.Messages {
		var d decoded
		if d.decode(raw) == nil {
			m := d.message
			outline.Messages = append(outline.Messages,
				consumers.Message{ID: m.ID, ThreadID: m.ThreadID, HistoryID: m.HistoryID, Labels: m.Labels})
			continue
		}
		var named struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &named) == nil && named.ID != "" {
			outline.Messages = append(outline.Messages, consumers.Message{ID: named.ID, ThreadID: t.ID})
		} else {
			outline.Unreadable++
		}
	}
	return outline, nil
}

func decodeMessage(id string, body []byte) (*decoded, error) {
	d := &decoded{}
	err := d.decode(body)
	if err == nil && d.message.ID != id {
		err = fmt.Errorf("%w: another message", errAnswer)
	}
	return d, err
}

// decode reads a message resource. What a message holds can be wrong in any way without an error; only JSON that is no
// message resource is one.
func (d *decoded) decode(raw []byte) error {
	m, err := resource(raw)
	if err != nil {
		return err
	}
	d.message = consumers.Message{
		ID: m.Id, ThreadID: m.ThreadId, HistoryID: consumers.HistoryID(m.HistoryId), InternalDate: time.UnixMilli(m.InternalDate).UTC(),
		Size: m.SizeEstimate, Labels: slices.Sorted(slices.Values(m.LabelIds)), Raw: raw,
	}
	d.message.Snippet = d.clean(html.UnescapeString(m.Snippet))
	if m.Payload != nil {
		d.headers(m.Payload.Headers)
		d.walk(m.Payload, 0)
	}
	return nil
}

func resource(raw []byte) (*gmail.Message, error) {
	var m gmail.Message
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%w: message: %w", errAnswer, err)
	}
	if m.Id == "" {
		return nil, fmt.Errorf("%w: a message without an id", errAnswer)
	}
	return &m, nil
}

// headers fills the columns: of a header that occurs more than once, all addresses and the first of anything else.
func (d *decoded) headers(headers []*gmail.MessagePartHeader) {
	m := &d.message
	first := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	join := func(field *string, value string) {
		if *field != "" {
			*field += ", "
		}
		*field += value
	}
	for _, h := range headers {
		if h == nil {
			continue
		}
		switch strings.ToLower(h.Name) {
		case "message-id":
			first(&m.RFCMessageID, strings.Trim(d.clean(h.Value), "<> \t\r\n"))
		case "from":
			first(&m.From, d.words(h.Value))
		case "subject":
			first(&m.Subject, d.words(h.Value))
		case "to":
			join(&m.To, d.words(h.Value))
		case "cc":
			join(&m.Cc, d.words(h.Value))
		case "date":
			if t, err := mail.ParseDate(h.Value); err == nil && m.Date.IsZero() {
				m.Date = t.UTC()
			}
		}
	}
}

// walk sorts the leaves of the MIME tree into body and attachments. A message/rfc822 part is an attachment as a whole.
func (d *decoded) walk(p *gmail.MessagePart, depth int) {
	kind := strings.ToLower(p.MimeType)
	switch {
	case depth > depthLimit:
		d.message.BodyMissing = true
	case strings.HasPrefix(kind, "multipart/"):
		for _, child := range p.Parts {
			if child != nil {
				d.walk(child, depth+1)
			}
		}
	case isBody(p, kind):
		d.body(p, kind)
	default:
		d.attach(p)
	}
}

// isBody: text that is neither named nor marked as an attachment.
func isBody(p *gmail.MessagePart, kind string) bool {
	return (kind == "text/plain" || kind == "text/html") && p.Filename == "" &&
		!strings.HasPrefix(strings.ToLower(strings.TrimSpace(headerOf(p, "Content-Disposition"))), "attachment")
}

func (d *decoded) body(p *gmail.MessagePart, kind string) {
	contentType := headerOf(p, "Content-Type")
	switch {
	case p.Body == nil:
	case p.Body.AttachmentId != "" && p.Body.Size > textLimit:
		d.message.BodyMissing = true
	case p.Body.AttachmentId != "":
		d.elsewhere = append(d.elsewhere, elsewhere{p.Body.AttachmentId, kind, contentType, p.Body.Size})
	default:
		data, err := decodeBase64(p.Body.Data)
		if err != nil {
			d.message.BodyMissing = true
			return
		}
		d.addText(kind, contentType, data)
	}
}

func (d *decoded) column(kind string) *strings.Builder {
	if kind == "text/html" {
		return &d.html
	}
	return &d.text
}

// fits tells whether a body part of size bytes has room in its column.
func (d *decoded) fits(kind string, size int64) bool {
	return int64(d.column(kind).Len())+size <= textLimit
}

// addText appends a body part to its column, one line apart from the part before it.
func (d *decoded) addText(kind, contentType string, data []byte) {
	column := d.column(kind)
	if !d.fits(kind, int64(len(data))) {
		d.message.BodyMissing = true
		return
	}
	if column.Len() > 0 && len(data) > 0 {
		column.WriteByte('\n')
	}
	column.WriteString(d.clean(d.decodeCharset(contentType, data)))
}

func (d *decoded) attach(p *gmail.MessagePart) {
	a := consumers.Attachment{
		PartID: p.PartId, Filename: d.clean(p.Filename), MIMEType: d.clean(p.MimeType),
		ContentID: strings.Trim(d.clean(headerOf(p, "Content-ID")), "<> "),
	}
	disposition := strings.ToLower(strings.TrimSpace(headerOf(p, "Content-Disposition")))
	a.Inline = strings.HasPrefix(disposition, "inline") || disposition == "" && a.ContentID != ""
	if p.Body != nil {
		a.Size = p.Body.Size
	}
	d.message.Attachments = append(d.message.Attachments, a)
}

func (d *decoded) finish() consumers.Message {
	d.message.Text, d.message.HTML = d.text.String(), d.html.String()
	return d.message
}

func headerOf(p *gmail.MessagePart, name string) string {
	for _, h := range p.Headers {
		if h != nil && strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

// decodeContent returns the bytes of an answer of messages.attachments.get, decoded where they stand in it: body is used up.
func decodeContent(body []byte) ([]byte, error) {
	var a *struct {
		Data inPlace `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("%w: attachment: %w", errAnswer, err)
	}
	if a == nil {
		return nil, errAnswer
	}
	return a.Data, nil
}

// inPlace is base64 in a JSON string. It shares the memory of the JSON.
type inPlace []byte

// UnmarshalJSON implements json.Unmarshaler.
func (p *inPlace) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || b[0] != '"' || bytes.IndexByte(b, '\\') >= 0 { // null, no string, or one with escapes
		var s string
		err := json.Unmarshal(b, &s)
		if err == nil {
			*p, err = decodeBase64(s)
		}
		return err
	}
	b = bytes.TrimRight(b[1:len(b)-1], "=")
	n, err := alphabet(bytes.ContainsAny(b, "+/")).Decode(b, b)
	*p = b[:n:n]
	return err
}

func alphabet(standard bool) *base64.Encoding {
	if standard {
		return base64.RawStdEncoding
	}
	return base64.RawURLEncoding
}

// decodeBase64 takes both alphabets, with padding and without.
func decodeBase64(s string) ([]byte, error) {
	s = strings.TrimRight(s, "=")
	standard := strings.Contains(s, "+") || strings.Contains(s, "/") // ContainsAny is slower, byte by byte
	return alphabet(standard).DecodeString(s)
}
