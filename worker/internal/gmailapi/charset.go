package gmailapi

import (
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
)

// replacement stands for what could not be decoded.
const replacement = string(utf8.RuneError)

// clean makes s valid UTF-8 without NUL, the text that every database takes, and notes whether it had to.
func (d *decoded) clean(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	d.message.Cleaned = true
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}

// words decodes the encoded words of a header (RFC 2047). One that cannot be decoded stays as it was written.
func (d *decoded) words(s string) string {
	decoder := mime.WordDecoder{CharsetReader: func(label string, input io.Reader) (io.Reader, error) {
		enc, err := htmlindex.Get(label)
		if err != nil {
			d.message.Cleaned = true
			return nil, err
		}
		return enc.NewDecoder().Reader(input), nil
	}}
	text, err := decoder.DecodeHeader(s)
	if err != nil {
		return d.clean(s)
	}
	if strings.Contains(text, replacement) && !strings.Contains(s, replacement) {
		d.message.Cleaned = true
	}
	return d.clean(text)
}

// decodeCharset turns a body part into UTF-8 by the character set of its Content-Type; where that is absent, unknown or
// wrong, by what the bytes look like.
func (d *decoded) decodeCharset(contentType string, data []byte) string {
	enc := d.encodingOf(contentType, data)
	if enc == nil {
		return string(data)
	}
	text, err := enc.NewDecoder().Bytes(data)
	if err != nil {
		d.message.Cleaned = true
		return string(data)
	}
	if strings.Contains(string(text), replacement) {
		d.message.Cleaned = true
	}
	return string(text)
}

// encodingOf returns nil for UTF-8. Bytes that are UTF-8 although a character set of one byte a letter is named are
// UTF-8: by chance such text does not come about, and Gmail and senders both convert bodies and leave the header.
func (d *decoded) encodingOf(contentType string, data []byte) encoding.Encoding {
	_, params, _ := mime.ParseMediaType(contentType) // a wrong Content-Type names no charset
	label := params["charset"]
	enc, err := htmlindex.Get(label)
	if label != "" && err != nil {
		d.message.Cleaned = true
	}
	_, narrow := enc.(*charmap.Charmap)
	if enc == unicode.UTF8 || (err != nil || narrow) && utf8.Valid(data) {
		return nil
	}
	if err != nil {
		enc, _, _ = charset.DetermineEncoding(data, contentType)
	}
	return enc
}
