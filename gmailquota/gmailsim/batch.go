package gmailsim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// maxBatch is Gmail's limit of calls in a batch.
const maxBatch = 100

// inner is one call of a batch.
type inner struct {
	contentID string
	call      *call
	failed    *reply
}

// serveBatch answers several calls in one request. Each is metered for itself, and all are in flight together.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request) {
	parts, err := s.readBatch(r)
	if err != nil {
		errorReply(err).write(w, r)
		return
	}
	answer := func() reply {
		for i := range parts {
			p := &parts[i]
			if p.failed != nil {
				continue
			}
			if err := p.call.admit(); err != nil {
				failed := errorReply(err)
				p.failed = &failed
				continue
			}
			defer p.call.done()
		}
		return writeBatch(r, parts)
	}()
	answer.write(w, r)
}

func (s *Server) readBatch(r *http.Request) ([]inner, error) {
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/mixed" || params["boundary"] == "" {
		return nil, badRequest("Failed to parse batch request: want multipart/mixed with a boundary")
	}
	reader := multipart.NewReader(io.LimitReader(r.Body, maxBody), params["boundary"])
	var parts []inner
	for {
		p, err := reader.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, badRequest("Failed to parse batch request: %v", err)
		}
		if len(parts) == maxBatch {
			return nil, badRequest("The batch request has more than %d calls", maxBatch)
		}
		parts = append(parts, s.readInner(r, p))
	}
	if len(parts) == 0 {
		return nil, badRequest("The batch request has no calls")
	}
	return parts, nil
}

func (s *Server) readInner(outer *http.Request, p *multipart.Part) inner {
	in := inner{contentID: p.Header.Get("Content-ID")}
	fail := func(err error) inner {
		failed := errorReply(err)
		in.failed = &failed
		return in
	}
	req, err := readRequest(p)
	if err != nil {
		return fail(badRequest("Failed to parse batch request: %v", err))
	}
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", outer.Header.Get("Authorization"))
	}
	if strings.HasPrefix(req.URL.Path, "/upload/") {
		return fail(badRequest("Uploads are not possible in a batch"))
	}
	if in.call, err = s.accept(req); err != nil {
		return fail(err)
	}
	return in
}

// readRequest reads a part as an HTTP request whose body, without a length, goes on to the part's end.
func readRequest(p io.Reader) (*http.Request, error) {
	b := bufio.NewReader(p)
	line, err := textproto.NewReader(b).ReadLine()
	if err != nil {
		return nil, err
	}
	if strings.Count(line, " ") == 1 {
		line += " HTTP/1.1"
	}
	header, err := textproto.NewReader(b).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + "\r\nHost: gmail\r\n\r\n")))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header(header)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	body, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return req, nil
}

func writeBatch(r *http.Request, parts []inner) reply {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, p := range parts {
		answer := p.failed
		if answer == nil {
			a := p.call.run(r.Context())
			answer = &a
		}
		if answer.drop {
			continue
		}
		header := textproto.MIMEHeader{"Content-Type": {"application/http"}}
		if p.contentID != "" {
			header.Set("Content-ID", "<response-"+strings.TrimPrefix(p.contentID, "<"))
		}
		part, err := w.CreatePart(header)
		if err != nil {
			return errorReply(err)
		}
		body := answer.body
		if answer.cut {
			body = body[:len(body)/2]
		}
		fmt.Fprintf(part, "HTTP/1.1 %d %s\r\n", answer.code, http.StatusText(answer.code))
		h := http.Header{}
		for name, values := range answer.header {
			h[name] = values
		}
		if len(body) > 0 && h.Get("Content-Type") == "" {
			h.Set("Content-Type", "application/json; charset=UTF-8")
		}
		_ = h.Write(part) // to memory
		fmt.Fprintf(part, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if err := w.Close(); err != nil {
		return errorReply(err)
	}
	return reply{
		code: http.StatusOK, body: out.Bytes(),
		header: http.Header{"Content-Type": {"multipart/mixed; boundary=" + w.Boundary()}},
	}
}
