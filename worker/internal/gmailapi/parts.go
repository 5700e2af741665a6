package gmailapi

import "google.golang.org/api/gmail/v1"

// depthLimit is how deep the MIME tree is followed. Mail clients nest about five levels; real mail a dozen.
const depthLimit = 100

// Header is one header line, its value as Gmail returned it.
type Header struct{ Name, Value string }

// Part is one node of a message's MIME tree.
type Part struct {
	PartID       string
	MIMEType     string
	Filename     string
	Headers      []Header
	Data         []byte // decoded; nil where there is none, it is no base64, or AttachmentID is set
	AttachmentID string // good for a moment only: it differs from fetch to fetch
	Size         int64  // decoded bytes
}

// Parts returns the nodes of a message resource in the order of the message, parents first, down to a depth of 100. It
// fails only for what is no message resource.
func Parts(raw []byte) ([]Part, error) {
	m, err := resource(raw)
	if err != nil {
		return nil, err
	}
	if m.Payload == nil {
		return nil, nil
	}
	return appendParts(nil, m.Payload, 0), nil
}

func appendParts(parts []Part, p *gmail.MessagePart, depth int) []Part {
	part := Part{PartID: p.PartId, MIMEType: p.MimeType, Filename: p.Filename}
	for _, h := range p.Headers {
		if h != nil {
			part.Headers = append(part.Headers, Header{h.Name, h.Value})
		}
	}
	if p.Body != nil {
		part.AttachmentID, part.Size = p.Body.AttachmentId, p.Body.Size
		if data, err := decodeBase64(p.Body.Data); err == nil && len(data) > 0 {
			part.Data = data
		}
	}
	parts = append(parts, part)
	if depth == depthLimit {
		return parts
	}
	for _, child := range p.Parts {
		if child != nil {
			parts = appendParts(parts, child, depth+1)
		}
	}
	return parts
}
