package gmailsim

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// segment is a stretch of a rendered payload and the part whose attachment id follows it, if any.
type segment struct {
	json []byte
	part string
	id   bool // an attachment id of part follows
}

// payload returns the message's rendered payload (format full), cut where attachment ids go.
func (c *content) payload(inlineLimit int) []segment {
	c.fullOnce.Do(func() {
		r := payloadRenderer{inlineLimit: inlineLimit}
		r.part(c.root)
		r.segments = append(r.segments, segment{json: r.buf})
		c.full = r.segments
	})
	return c.full
}

// payloadRenderer writes a MessagePart as JSON by hand, because attachment ids change with every fetch while the rest,
// most of it base64, stays the same.
type payloadRenderer struct {
	inlineLimit int
	buf         []byte
	segments    []segment
}

func (r *payloadRenderer) part(p *part) {
	r.str(`{"partId":`, p.id)
	r.str(`,"mimeType":`, p.mimeType)
	r.str(`,"filename":`, p.filename)
	if len(p.headers) > 0 {
		r.buf = append(r.buf, `,"headers":`...)
		r.buf = appendHeaders(r.buf, p.headers)
	}
	r.buf = append(r.buf, `,"body":`...)
	r.body(p)
	if len(p.parts) > 0 {
		r.buf = append(r.buf, `,"parts":[`...)
		for i, child := range p.parts {
			if i > 0 {
				r.buf = append(r.buf, ',')
			}
			r.part(child)
		}
		r.buf = append(r.buf, ']')
	}
	r.buf = append(r.buf, '}')
}

func (r *payloadRenderer) body(p *part) {
	r.buf = append(r.buf, '{')
	switch {
	case p.multipart() || len(p.data) == 0:
	case p.filename != "" || !p.text() || len(p.data) > r.inlineLimit:
		r.buf = append(r.buf, `"attachmentId":"`...)
		r.segments = append(r.segments, segment{json: r.buf, part: p.id, id: true})
		r.buf = []byte(`",`)
	}
	r.buf = append(r.buf, `"size":`...)
	r.buf = strconv.AppendInt(r.buf, int64(len(p.data)), 10)
	if len(p.data) > 0 && p.filename == "" && p.text() && len(p.data) <= r.inlineLimit {
		r.buf = append(r.buf, `,"data":"`...)
		r.buf = base64.RawURLEncoding.AppendEncode(r.buf, p.data)
		r.buf = append(r.buf, '"')
	}
	r.buf = append(r.buf, '}')
}

func (r *payloadRenderer) str(prefix, s string) {
	r.buf = append(r.buf, prefix...)
	r.buf = appendJSON(r.buf, s)
}

func appendHeaders(b []byte, headers []Header) []byte {
	b = append(b, '[')
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendJSON(b, h.Name)
		b = append(b, `,"value":`...)
		b = appendJSON(b, h.Value)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendJSON(b []byte, v any) []byte {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings and plain structs come here
	}
	return append(b, encoded...)
}
