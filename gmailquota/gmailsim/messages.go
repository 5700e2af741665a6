package gmailsim

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

func getProfile(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	return struct {
		EmailAddress  string `json:"emailAddress"`
		MessagesTotal int    `json:"messagesTotal"`
		ThreadsTotal  int    `json:"threadsTotal"`
		HistoryID     string `json:"historyId"`
	}{b.address, len(b.messages), len(b.threads), formatID(b.historyID)}, nil
}

func (b *mailbox) message(id string) (*message, error) {
	if m := b.messages[normalID(id)]; m != nil {
		return m, nil
	}
	return nil, notFound()
}

func (b *mailbox) thread(id string) (*thread, error) {
	if t := b.threads[normalID(id)]; t != nil {
		return t, nil
	}
	return nil, notFound()
}

// normalID pads an id to its 16 digits.
func normalID(id string) string {
	if len(id) < 16 {
		return strings.Repeat("0", 16-len(id)) + id
	}
	return id
}

func getMessage(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := b.message(c.id())
	if err != nil {
		return nil, err
	}
	return c.s.appendMessage(nil, m, c.format(), c.query["metadataHeaders"]), nil
}

func getThread(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.thread(c.id())
	if err != nil {
		return nil, err
	}
	b.gets[t.id]++
	return c.s.appendThread(nil, t, c.format(), c.query["metadataHeaders"]), nil
}

func (s *Server) appendThread(out []byte, t *thread, format string, headers []string) []byte {
	out = append(out, `{"id":"`...)
	out = append(out, t.id...)
	out = append(out, `","historyId":"`...)
	out = strconv.AppendUint(out, t.historyID, 10)
	out = append(out, `","messages":[`...)
	for i, m := range t.messages {
		if i > 0 {
			out = append(out, ',')
		}
		out = s.appendMessage(out, m, format, headers)
	}
	return append(out, `]}`...)
}

func (c *call) format() string {
	if f := c.query.Get("format"); f != "" {
		return f
	}
	return "full"
}

// appendMessage renders a message. A field without value is left out.
func (s *Server) appendMessage(out []byte, m *message, format string, headers []string) []byte {
	out = append(out, `{"id":"`...)
	out = append(out, m.id...)
	out = append(out, `","threadId":"`...)
	out = append(out, m.thread.id...)
	out = append(out, '"')
	if len(m.labels) > 0 {
		out = append(out, `,"labelIds":`...)
		out = appendJSON(out, m.labels)
	}
	if m.snippet != "" {
		out = append(out, `,"snippet":`...)
		out = appendJSON(out, m.snippet)
	}
	switch format {
	case "full":
		out = append(out, `,"payload":`...)
		for _, seg := range m.payload(s.cfg.InlineLimit) {
			out = append(out, seg.json...)
			if seg.id {
				out = append(out, s.attachmentID(m.id, seg.part)...)
			}
		}
	case "metadata":
		out = appendMetadata(out, m.root, headers)
	case "raw":
		out = append(out, `,"raw":"`...)
		out = base64.URLEncoding.AppendEncode(out, m.raw)
		out = append(out, '"')
	}
	out = append(out, `,"sizeEstimate":`...)
	out = strconv.AppendInt(out, int64(len(m.raw)), 10)
	out = append(out, `,"historyId":"`...)
	out = strconv.AppendUint(out, m.historyID, 10)
	out = append(out, `","internalDate":"`...)
	out = strconv.AppendInt(out, m.date, 10)
	return append(out, `"}`...)
}

func appendMetadata(out []byte, root *part, names []string) []byte {
	headers := root.headers
	if len(names) > 0 {
		headers = slices.DeleteFunc(slices.Clone(headers), func(h Header) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, h.Name) })
		})
	}
	out = append(out, `,"payload":{"mimeType":`...)
	out = appendJSON(out, root.mimeType)
	if len(headers) > 0 {
		out = append(out, `,"headers":`...)
		out = appendHeaders(out, headers)
	}
	return append(out, '}')
}

// An attachment id is a nonce, a check sum that binds it to a message and part, and the part id. So ids differ from
// fetch to fetch, all stay valid, and nothing has to be remembered.
const (
	nonceSize = 8
	checkSize = 24
)

func (s *Server) attachmentID(message, part string) string {
	var id [nonceSize + checkSize]byte
	binary.BigEndian.PutUint64(id[:], s.nonce.Add(1))
	check := s.attachmentCheck(id[:nonceSize], message, part)
	copy(id[nonceSize:], check)
	return "ANGjdJ" + base64.RawURLEncoding.EncodeToString(append(id[:], part...))
}

func (s *Server) attachmentCheck(nonce []byte, message, part string) []byte {
	h := sha256.New()
	h.Write(s.secret[:])
	h.Write(nonce)
	h.Write([]byte(message + "/" + part))
	return h.Sum(nil)[:checkSize]
}

func getAttachment(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := b.message(c.id())
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(c.ids["attachment"], "ANGjdJ")
	id, decodeErr := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || decodeErr != nil || len(id) < nonceSize+checkSize {
		return nil, badRequest("Invalid attachment token")
	}
	partID := string(id[nonceSize+checkSize:])
	check := c.s.attachmentCheck(id[:nonceSize], m.id, partID)
	p := m.parts[partID]
	if subtle.ConstantTimeCompare(check, id[nonceSize:nonceSize+checkSize]) == 0 || p == nil {
		return nil, badRequest("Invalid attachment token")
	}
	return struct {
		Size int    `json:"size"`
		Data string `json:"data"`
	}{len(p.data), base64.URLEncoding.EncodeToString(p.data)}, nil
}
