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
	"strings"
)

// Gmail takes at most 100 calls in a batch; their requests are small.
const (
	batchParts = 100
	batchBytes = 64 << 20
)

// priceBatch adds up the calls of a batch. It reads the request's body and puts it back.
func (t *Transport) priceBatch(req *http.Request) (calls int, units int64, err error) {
	kind, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" || req.Body == nil {
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
	parts := multipart.NewReader(bytes.NewReader(data), params["boundary"])
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

var _ http.RoundTripper = (*Transport)(nil)
