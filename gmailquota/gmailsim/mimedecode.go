package gmailsim

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strings"

	"golang.org/x/text/encoding/htmlindex"
)

// decodeTransfer removes a transfer encoding as far as the bytes allow; an unknown one leaves them as they are.
func decodeTransfer(encoding string, body []byte) []byte {
	encoding, _, _ = strings.Cut(encoding, ";")
	switch strings.ToLower(strings.Trim(encoding, " \t\"'")) {
	case "base64":
		return decodeBase64(body)
	case "quoted-printable":
		return decodeQuotedPrintable(body)
	}
	return body
}

// decodeBase64 skips bytes outside the alphabet and goes on after padding, as concatenated encodings need.
func decodeBase64(body []byte) []byte {
	clean := make([]byte, 0, len(body))
	out := make([]byte, 0, len(body)*3/4)
	flush := func() {
		if len(clean)%4 == 1 {
			clean = clean[:len(clean)-1]
		}
		out, _ = base64.RawStdEncoding.AppendDecode(out, clean)
		clean = clean[:0]
	}
	for _, c := range body {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/':
			clean = append(clean, c)
		case c == '=':
			flush()
		}
	}
	flush()
	return out
}

// decodeQuotedPrintable keeps an equals sign that starts no valid sequence.
func decodeQuotedPrintable(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '=' {
			out = append(out, body[i])
			continue
		}
		if n, ok := softBreak(body[i+1:]); ok {
			i += n
			continue
		}
		if i+2 < len(body) {
			high, low := unhex(body[i+1]), unhex(body[i+2])
			if high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, '=')
	}
	return out
}

// softBreak measures the white space and line break after an equals sign.
func softBreak(b []byte) (int, bool) {
	n := len(b) - len(bytes.TrimLeft(b, " \t\r"))
	if n == len(b) {
		return n, true
	}
	if b[n] == '\n' {
		return n + 1, true
	}
	return 0, false
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// parseParams reads "value; name=value; …" as tolerantly as mail programs do: quotes may be missing, the first of two
// equal names counts, and RFC 2231 continuations and character sets are joined and decoded.
func parseParams(s string) (value string, params map[string]string) {
	pieces := splitParams(s)
	value = strings.ToLower(strings.TrimSpace(pieces[0]))
	params = make(map[string]string, len(pieces)-1)
	for _, piece := range pieces[1:] {
		name, v, ok := strings.Cut(piece, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if _, seen := params[name]; !ok || name == "" || seen {
			continue
		}
		params[name] = unquote(strings.TrimSpace(v))
	}
	for _, name := range []string{"filename", "name", "boundary", "charset"} {
		if v, ok := joinContinuations(params, name); ok {
			params[name] = v
		}
	}
	return value, params
}

// splitParams splits at semicolons outside quotes.
func splitParams(s string) []string {
	var pieces []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ';' && !quoted:
			pieces = append(pieces, s[start:i])
			start = i + 1
		}
	}
	return append(pieces, s[start:])
}

func unquote(v string) string {
	if !strings.HasPrefix(v, `"`) {
		return v
	}
	var b strings.Builder
	for i := 1; i < len(v) && v[i] != '"'; i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// joinContinuations reads name*=charset'language'value and name*0*=…; name*1=… (RFC 2231).
func joinContinuations(params map[string]string, name string) (string, bool) {
	if v, ok := params[name+"*"]; ok {
		return decodeExtended(v), true
	}
	var b strings.Builder
	extended := false
	for i := 0; ; i++ {
		v, plain := params[fmt.Sprintf("%s*%d", name, i)]
		if !plain {
			var ok bool
			if v, ok = params[fmt.Sprintf("%s*%d*", name, i)]; !ok {
				break
			}
			extended = true
		}
		b.WriteString(v)
	}
	if b.Len() == 0 {
		return "", false
	}
	if extended {
		return decodeExtended(b.String()), true
	}
	return b.String(), true
}

func decodeExtended(v string) string {
	fields := strings.SplitN(v, "'", 3)
	if len(fields) != 3 {
		return v
	}
	raw, err := url.PathUnescape(fields[2])
	if err != nil {
		return fields[2]
	}
	return toUTF8([]byte(raw), fields[0])
}

var words = mime.WordDecoder{CharsetReader: func(charset string, r io.Reader) (io.Reader, error) {
	enc, err := htmlindex.Get(charset)
	if err != nil {
		return nil, err
	}
	return enc.NewDecoder().Reader(r), nil
}}

// decodeWords decodes encoded words; text that cannot be decoded stays as it is, made valid UTF-8.
func decodeWords(s string) string {
	if decoded, err := words.DecodeHeader(s); err == nil {
		s = decoded
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// toUTF8 decodes text from a character set; an unknown one counts as UTF-8.
func toUTF8(b []byte, charset string) string {
	if enc, err := htmlindex.Get(charset); err == nil {
		if decoded, err := enc.NewDecoder().Bytes(b); err == nil {
			b = decoded
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
