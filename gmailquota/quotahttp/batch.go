package quotahttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Gmail takes at most 100 calls in a batch. A batch's request that is larger is not sent; of its answer this much is
// searched for refusals.
const (
	batchParts = 100
	batchBytes = 64 << 20
)

// priceBatch adds up the calls of a batch. It reads the request's body and puts it back.
func (t *Transport) priceBatch(req *http.Request) (calls int, units int64, err error) {
	boundary := boundaryOf(req.Header.Get("Content-Type"))
	if boundary == "" || req.Body == nil {
		return 0, 0, errors.New("quotahttp: the batch is no multipart request, so it has no price and was not sent")
	}
	data, err := io.ReadAll(io.LimitReader(req.Body, batchBytes+1))
	if err != nil {
		return 0, 0, fmt.Errorf("quotahttp: reading the batch: %w", err)
	}
	if len(data) > batchBytes {
		return 0, 0, fmt.Errorf("quotahttp: the batch is larger than %d MB and was not sent", batchBytes>>20)
	}
	_ = req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(data))
	parts := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, fmt.Errorf("quotahttp: the batch cannot be read and was not sent: %w", err)
		}
		price, err := t.pricePart(part)
		if err != nil {
			return 0, 0, err
		}
		if calls++; calls > batchParts {
			return 0, 0, fmt.Errorf("quotahttp: the batch has more than %d calls and was not sent", batchParts)
		}
		units += price
	}
	if calls == 0 {
		return 0, 0, errors.New("quotahttp: the batch has no calls and was not sent")
	}
	return calls, units, nil
}

// pricePart reads the request line of a part: "GET /gmail/v1/users/me/threads/1 HTTP/1.1", its version optional.
func (t *Transport) pricePart(part io.Reader) (int64, error) {
	line, err := bufio.NewReader(part).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("quotahttp: a call of the batch cannot be read, so it was not sent: %w", err)
	}
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, errors.New("quotahttp: a call of the batch has no request line, so it was not sent")
	}
	u, err := url.Parse(fields[1])
	if err != nil {
		return 0, &UnknownError{fields[0], "a call of the batch whose URL cannot be read"}
	}
	method, err := Method(fields[0], u)
	if err != nil {
		return 0, err
	}
	return t.Guard.Price(method)
}

// batchRefusals finds the calls that Gmail refused in a batch's answer: of each scope one, with the latest time that was
// stated. What cannot be read is no refusal.
func batchRefusals(contentType string, data []byte, now time.Time) []gmailquota.Refusal {
	var found []gmailquota.Refusal
	parts := multipart.NewReader(bytes.NewReader(data), boundaryOf(contentType))
	for range batchParts {
		part, err := parts.NextRawPart()
		if err != nil {
			break
		}
		r, ok := partRefusal(part, now)
		if !ok {
			continue
		}
		same := slices.IndexFunc(found, func(f gmailquota.Refusal) bool { return f.Scope == r.Scope })
		if same < 0 {
			found = append(found, r)
		} else if r.Until.After(found[same].Until) {
			found[same] = r
		}
	}
	return found
}

// partRefusal reads the answer to one call: a whole HTTP response.
func partRefusal(part io.Reader, now time.Time) (gmailquota.Refusal, bool) {
	resp, err := http.ReadResponse(bufio.NewReader(part), nil)
	if err != nil {
		return gmailquota.Refusal{}, false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < http.StatusBadRequest {
		return gmailquota.Refusal{}, false
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBody)) // half a body counts as far as it goes
	return gmailquota.ParseRefusal(resp.StatusCode, resp.Header, body, now)
}

// boundaryOf is the boundary of a multipart body, or "".
func boundaryOf(contentType string) string {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return ""
	}
	return params["boundary"]
}

var _ http.RoundTripper = (*Transport)(nil)
