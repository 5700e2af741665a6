package gmailsim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// call is one Gmail call on its way through the simulator.
type call struct {
	s      *Server
	box    *mailbox
	to     *endpoint
	ids    map[string]string // from the path
	query  url.Values
	fields *selector
	body   []byte
	media  string // content type of the body
	upload bool
}

// id is the resource that the call is about, if the path names one.
func (c *call) id() string { return c.ids["id"] }

func (c *call) maxResults() int {
	n, _ := strconv.Atoi(c.query.Get("maxResults")) // checked by accept
	if n == 0 {
		return 100
	}
	return n
}

// decode reads the JSON body, strictly.
func (c *call) decode(v any) error {
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return badRequest("Invalid JSON payload received. %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// reply is a finished answer. drop and cut end the connection before or in the middle of it.
type reply struct {
	code   int
	header http.Header
	body   []byte
	drop   bool
	cut    bool
}

func errorReply(err error) reply {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{500, "INTERNAL", "global", "backendError", "Internal error encountered."}
	}
	r := reply{code: e.code, body: e.body()}
	if e.code == http.StatusUnauthorized {
		r.header = http.Header{"Www-Authenticate": {`Bearer realm="https://accounts.google.com/", error="invalid_token"`}}
	}
	return r
}

// maxBody is above Gmail's largest message (50 MB) in base64.
const maxBody = 80 << 20

// accept authenticates a request and checks all that can be checked without the mailbox.
func (s *Server) accept(r *http.Request) (*call, error) {
	to, ids, upload := route(r.Method, r.URL.Path)
	if to == nil {
		return nil, &apiError{404, "NOT_FOUND", "global", "notFound", "Method not found."}
	}
	box, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	if user := strings.ToLower(ids["user"]); user != "me" && user != box.address {
		return nil, delegationDenied()
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("Invalid query string")
	}
	c := &call{s: s, box: box, to: to, ids: ids, query: query, upload: upload, media: r.Header.Get("Content-Type")}
	if err := to.check(query); err != nil {
		return nil, err
	}
	if err := to.checkIDs(ids); err != nil {
		return nil, err
	}
	if c.fields, err = parseFields(query.Get("fields")); err != nil {
		return nil, err
	}
	if r.Body != nil {
		if c.body, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1)); err != nil {
			return nil, badRequest("The request body could not be read")
		}
		if len(c.body) > maxBody {
			return nil, &apiError{413, "", "global", "uploadTooLarge", "Request is too large"}
		}
	}
	return c, nil
}

// admit asks the meter. A call that it admits must be ended with done.
func (c *call) admit() error {
	if by := c.s.meter.admit(c.box.address, c.to.method, c.s.prices[c.to.method]); by != "" {
		return refusal(by)
	}
	return nil
}

func (c *call) done() { c.s.meter.done(c.box.address) }

// run answers an admitted call.
func (c *call) run(ctx context.Context) reply {
	pause(ctx, c.s.cfg.Latency)
	if fault := c.s.faults.match(c.to.method, c.id(), c.box.address, c.s.cfg.Now()); fault != nil {
		c.s.meter.faulted()
		pause(ctx, fault.Delay)
		if fault.Cut {
			answer := c.answer()
			answer.cut = true
			return answer
		}
		if !fault.passes() {
			return fault.reply()
		}
	}
	return c.answer()
}

func (c *call) answer() reply {
	v, err := c.to.do(c)
	if err != nil {
		return errorReply(err)
	}
	if v == nil {
		return reply{code: http.StatusNoContent}
	}
	body, ready := v.([]byte)
	if !ready {
		if body, err = json.Marshal(v); err != nil {
			return errorReply(err)
		}
	}
	if c.fields != nil {
		if body, err = c.fields.apply(body); err != nil {
			return errorReply(err)
		}
	}
	return reply{code: http.StatusOK, body: body}
}

// pause waits for d or until the client has gone.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	c, err := s.accept(r)
	if err == nil {
		err = c.admit()
	}
	if err != nil {
		errorReply(err).write(w, r)
		return
	}
	answer := func() reply {
		// The call counts as in flight no longer than this: a client that has read the answer may start its next
		// call at once.
		defer c.done()
		return c.run(r.Context())
	}()
	answer.write(w, r)
}

var gzips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// gzipFrom is where compressing begins to pay.
const gzipFrom = 1024

func (a reply) write(w http.ResponseWriter, r *http.Request) {
	if a.drop {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	for name, values := range a.header {
		h[name] = values
	}
	if len(a.body) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json; charset=UTF-8")
	}
	h.Set("Vary", "Origin, X-Origin, Referer, Accept-Encoding")
	h.Set("Cache-Control", "private")
	body := a.body
	if len(body) >= gzipFrom && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = compress(body)
	}
	if a.code != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(a.code)
	if a.cut {
		_, _ = w.Write(body[:len(body)/2]) // the client is to see the connection break
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body) // a client that went away misses its answer; nothing to do about it
}

func compress(body []byte) []byte {
	var out bytes.Buffer
	z := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)
	z.Reset(&out)
	_, _ = z.Write(body) // to memory
	_ = z.Close()
	return out.Bytes()
}
