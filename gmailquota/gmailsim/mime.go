package gmailsim

import (
	"bytes"
	"strconv"
	"strings"
)

// Header is one header field as Gmail shows it: the name as written, the value unfolded (line breaks removed, white
// space kept) and otherwise as written, encoded words included. Bytes that are no UTF-8 become U+FFFD.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maxDepth bounds the MIME tree; what is nested deeper stays undivided in its last part.
const maxDepth = 100

// part is a node of a message's MIME tree. A multipart has parts and no data; a message/rfc822 has both: its data is
// the message, and its only part is that message's tree.
type part struct {
	id       string
	mimeType string
	charset  string
	filename string
	headers  []Header
	data     []byte // transfer encoding removed, character set as it was
	parts    []*part
}

// parseMessage reads a message into its tree. It never fails: what is broken becomes a leaf that holds all bytes.
func parseMessage(raw []byte) *part {
	return parsePart(raw, "", "text/plain", 0)
}

func parsePart(raw []byte, id, defaultType string, depth int) *part {
	headers, body := splitHeaders(raw)
	p := &part{id: id, headers: headers}
	mediaType, params := parseParams(headerValue(headers, "Content-Type"))
	p.mimeType = cleanType(mediaType, defaultType)
	p.charset = params["charset"]
	_, disposition := parseParams(headerValue(headers, "Content-Disposition"))
	p.filename = decodeWords(disposition["filename"])
	if p.filename == "" {
		p.filename = decodeWords(params["name"])
	}

	if strings.HasPrefix(p.mimeType, "multipart/") && depth < maxDepth {
		childType := "text/plain"
		if p.mimeType == "multipart/digest" {
			childType = "message/rfc822"
		}
		for i, child := range splitMultipart(body, params["boundary"]) {
			p.parts = append(p.parts, parsePart(child, childID(id, i), childType, depth+1))
		}
		if p.parts != nil {
			return p
		}
	}
	p.data = decodeTransfer(headerValue(headers, "Content-Transfer-Encoding"), body)
	if p.mimeType == "message/rfc822" && depth < maxDepth && len(p.data) > 0 {
		p.parts = []*part{parsePart(p.data, childID(id, 0), "text/plain", depth+1)}
	}
	return p
}

func childID(parent string, i int) string {
	if parent == "" {
		return strconv.Itoa(i)
	}
	return parent + "." + strconv.Itoa(i)
}

// walk visits the tree in document order.
func (p *part) walk(visit func(*part)) {
	visit(p)
	for _, child := range p.parts {
		child.walk(visit)
	}
}

func (p *part) multipart() bool { return p.parts != nil && p.mimeType != "message/rfc822" }

func (p *part) text() bool { return strings.HasPrefix(p.mimeType, "text/") }

// splitHeaders reads the header block. A line that is neither a field nor folded continues the field before it, as
// badly wrapped headers need; as the first line it means that there is no header block.
func splitHeaders(raw []byte) (headers []Header, body []byte) {
	rest := raw
	for len(rest) > 0 {
		line, after := cutLine(rest)
		switch {
		case len(line) == 0:
			return headers, after
		case len(headers) == 0 && isEnvelope(line):
		case len(headers) > 0 && !isField(line):
			headers[len(headers)-1].Value += string(line)
		case !isField(line):
			return nil, rest
		default:
			name, value, _ := bytes.Cut(line, []byte(":"))
			headers = append(headers, Header{Name: string(bytes.TrimRight(name, " \t")), Value: string(value)})
		}
		rest = after
	}
	return headers, nil
}

// cleanHeaders finishes values after unfolding.
func cleanHeaders(p *part) {
	p.walk(func(p *part) {
		for i := range p.headers {
			p.headers[i].Value = strings.ToValidUTF8(strings.Trim(p.headers[i].Value, " \t"), "\uFFFD")
		}
	})
}

// cutLine splits off the first line; line is without its ending.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

// isEnvelope tells the "From " line that mail files and some broken senders put first.
func isEnvelope(line []byte) bool {
	return bytes.HasPrefix(line, []byte("From ")) || bytes.HasPrefix(line, []byte(">From "))
}

func isField(line []byte) bool {
	i := bytes.IndexByte(line, ':')
	if i <= 0 || line[0] == ' ' || line[0] == '\t' {
		return false
	}
	for _, c := range bytes.TrimRight(line[:i], " \t") {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

func headerValue(headers []Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name, name) {
			return strings.TrimSpace(h.Value)
		}
	}
	return ""
}

// cleanType returns a lower-case type/subtype, or the default where there is none that makes sense.
func cleanType(t, fallback string) string {
	major, minor, ok := strings.Cut(t, "/")
	if !ok || major == "" || minor == "" || strings.ContainsAny(t, " \t\"()<>@,;:\\[]?=") {
		return fallback
	}
	return t
}

// splitMultipart returns the parts between boundary lines; nil if there are none. Preamble and epilogue are left out. A
// missing end boundary ends the last part with the text.
func splitMultipart(body []byte, boundary string) [][]byte {
	if boundary == "" {
		return nil
	}
	delimiter := []byte("--" + boundary)
	var parts [][]byte
	start := -1
	for pos := 0; pos < len(body); {
		line, rest := cutLine(body[pos:])
		next := len(body) - len(rest)
		if after, ok := bytes.CutPrefix(line, delimiter); ok {
			end := bytes.HasPrefix(after, []byte("--")) && len(bytes.TrimSpace(after[2:])) == 0
			if end || len(bytes.TrimSpace(after)) == 0 {
				if start >= 0 {
					parts = append(parts, trimBreak(body[min(start, pos):pos]))
				}
				start = next
				if end {
					return parts
				}
			}
		}
		pos = next
	}
	if start >= 0 && start < len(body) {
		parts = append(parts, body[start:])
	}
	return parts
}

// trimBreak removes the line break that belongs to the boundary after it.
func trimBreak(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}
