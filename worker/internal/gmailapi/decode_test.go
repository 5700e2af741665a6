package gmailapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gmailsync/gmailsync/consumers"
)

type part map[string]any

func leaf(mimeType, contentType, disposition, filename, data string) part {
	headers := []part{{"name": "Content-Type", "value": contentType}}
	if disposition != "" {
		headers = append(headers, part{"name": "Content-Disposition", "value": disposition})
	}
	return part{"partId": "0", "mimeType": mimeType, "filename": filename, "headers": headers, "body": part{
		"size": len(data), "data": base64.RawURLEncoding.EncodeToString([]byte(data)),
	}}
}

func multipart(kind string, parts ...part) part {
	return part{"mimeType": "multipart/" + kind, "parts": parts}
}

func decodePayload(t *testing.T, payload part) consumers.Message {
	t.Helper()
	raw, err := json.Marshal(part{"id": "1", "threadId": "1", "historyId": "5", "internalDate": "1793600000123", "payload": payload})
	if err != nil {
		t.Fatal(err)
	}
	d, err := decodeMessage("1", raw)
	if err != nil {
		t.Fatal(err)
	}
	return d.finish()
}

// Body and attachments of trees as mail clients make them (MemberJunction/MJ#2874, taylorwilsdon/google_workspace_mcp#939).
func TestBodyAndAttachments(t *testing.T) {
	text := leaf("text/plain", "text/plain; charset=utf-8", "", "", "plain")
	html := leaf("text/html", "text/html; charset=utf-8", "", "", "<p>html</p>")
	image := leaf("image/png", "image/png", "inline", "a.png", "\x89PNG")
	deep := text
	for range 50 {
		deep = multipart("mixed", deep)
	}
	endless := text
	for range depthLimit + 2 {
		endless = multipart("mixed", endless)
	}
	for name, c := range map[string]struct {
		payload     part
		text, html  string
		attachments int
		missing     bool
	}{
		"related(alternative, image)": {multipart("related", multipart("alternative", text, html), image), "plain", "<p>html</p>", 1, false},
		"empty plain and html":        {multipart("alternative", leaf("text/plain", "text/plain", "", "", ""), html), "", "<p>html</p>", 0, false},
		"text as attachment":          {multipart("mixed", text, leaf("text/plain", "text/plain", "attachment", "", "a log")), "plain", "", 1, false},
		"text with a name":            {multipart("mixed", text, leaf("text/plain", "text/plain", "", "log.txt", "a log")), "plain", "", 1, false},
		"two texts":                   {multipart("mixed", text, text), "plain\nplain", "", 0, false},
		"message inside": {multipart("mixed", text, part{"partId": "1", "mimeType": "message/rfc822", "parts": []part{text}, "body": part{"attachmentId": "x", "size": 9}}),
			"plain", "", 1, false},
		"50 levels":      {deep, "plain", "", 0, false},
		"endless levels": {endless, "", "", 0, true},
		"no base64":      {part{"mimeType": "text/plain", "body": part{"data": "%%%"}}, "", "", 0, true},
		"no body":        {part{"mimeType": "text/plain"}, "", "", 0, false},
		"a huge text":    {part{"mimeType": "text/plain", "body": part{"attachmentId": "x", "size": textLimit + 1}}, "", "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := decodePayload(t, c.payload)
			if m.Text != c.text || m.HTML != c.html || len(m.Attachments) != c.attachments || m.BodyMissing != c.missing {
				t.Errorf("text %q, html %q, %d attachments, missing %v", m.Text, m.HTML, len(m.Attachments), m.BodyMissing)
			}
		})
	}
}

// Text that is wrong is cleaned and says so (LogicLabs-OU/OpenArchiver#479, twentyhq/twenty#13366, nextcloud/mail#5215).
func TestCharactersOfTheBody(t *testing.T) {
	for name, c := range map[string]struct {
		contentType, data, want string
		cleaned                 bool
	}{
		"utf-8":                         {"text/plain; charset=UTF-8", "é", "é", false},
		"latin 1":                       {"text/plain; charset=iso-8859-1", "caf\xe9", "café", false},
		"windows 1252":                  {"text/plain; charset=windows-1252", "\x80", "€", false},
		"utf-8 under a wrong name":      {"text/plain; charset=iso-8859-1", "café", "café", false},
		"iso-2022-jp":                   {"text/plain; charset=ISO-2022-JP", "\x1b$B$\"\x1b(B", "あ", false},
		"gbk":                           {"text/plain; charset=gb2312", "\xc4\xe3", "你", false},
		"a wrong byte in utf-8":         {"text/plain; charset=utf-8", "caf\xe9", "caf\ufffd", true},
		"an unknown name":               {"text/plain; charset=x-unknown", "caf\xe9", "café", true},
		"an unknown name of plain text": {"text/plain; charset=x-unknown", "cafe", "cafe", true},
		"no name":                       {"text/plain", "caf\xe9", "café", false},
		"no sense":                      {"text/plain; charset", "cafe", "cafe", false},
		"a NUL":                         {"text/plain; charset=utf-8", "x\x00y", "x\ufffdy", true},
		"html that says it itself":      {"text/html", `<meta charset="koi8-r">` + "\xc1", `<meta charset="koi8-r">а`, false},
	} {
		t.Run(name, func(t *testing.T) {
			mimeType, _, _ := strings.Cut(c.contentType, ";")
			m := decodePayload(t, leaf(mimeType, c.contentType, "", "", c.data))
			if got := m.Text + m.HTML; got != c.want || m.Cleaned != c.cleaned {
				t.Errorf("%q, cleaned %v; want %q, %v", got, m.Cleaned, c.want, c.cleaned)
			}
		})
	}
}

func TestHeadersOfTheColumns(t *testing.T) {
	header := func(name, value string) part { return part{"name": name, "value": value} }
	payload := part{"mimeType": "text/plain", "headers": []part{
		header("MESSAGE-ID", " <a@b> "), header("Subject", "=?utf-8?Q?caf=C3=A9?= and =?iso-8859-1?B?6Q==?="), header("Subject", "second"),
		header("From", "=?utf-8?B?w4lhbg==?= <e@example.com>"), header("To", "a@example.com"), header("to", "b@example.com"),
		header("Date", "Tue, 3 Nov 2026 12:00:00 -0500 (EST)"),
	}}
	m := decodePayload(t, payload)
	if m.RFCMessageID != "a@b" || m.Subject != "café and é" || m.From != "Éan <e@example.com>" || m.To != "a@example.com, b@example.com" ||
		!m.Date.Equal(time.Date(2026, 11, 3, 17, 0, 0, 0, time.UTC)) || m.Cleaned || !m.InternalDate.Equal(time.UnixMilli(1793600000123)) {
		t.Errorf("%+v", m)
	}
	payload["headers"] = []part{header("Subject", "x\x00 =?x-unknown?Q?=E9?= =?utf-8?Q?=ED=A0=80?="), header("Date", "yesterday")}
	m = decodePayload(t, payload)
	if !m.Cleaned || !utf8.ValidString(m.Subject) || strings.Contains(m.Subject, "\x00") || !m.Date.IsZero() {
		t.Errorf("subject %q, cleaned %v, date %v", m.Subject, m.Cleaned, m.Date)
	}
}

// Absent fields are left out by Gmail: nothing but the id is certain.
func TestAMessageWithoutAnything(t *testing.T) {
	d, err := decodeMessage("1", []byte(`{"id":"1"}`))
	if err != nil || d.finish().ID != "1" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, raw := range []string{``, `[]`, `{}`, `{"id":7}`, `{"id":"2"}`, `{"id":"1","historyId":"-1"}`, `<html>`} {
		if _, err := decodeMessage("1", []byte(raw)); err == nil {
			t.Errorf("%s is no message", raw)
		}
	}
}

// An answer that is about something else, or about nothing, must not settle the thread that was asked for.
func TestAThreadIsTheOneThatWasAskedFor(t *testing.T) {
	for _, raw := range []string{`{}`, `{"id":"2","historyId":"5","messages":[{"id":"2"}]}`, `{"id":"1","historyId":"5"}`} {
		if d, err := decodeThread("1", []byte(raw)); err == nil {
			t.Errorf("%s was taken: %+v", raw, d)
		}
	}
}

// One part that cannot be decoded must not take the others along, nor a message those after it.
func TestPartsThatCannotBeDecoded(t *testing.T) {
	parts, err := Parts([]byte(`{"id":"1","payload":{"mimeType":"multipart/mixed","headers":[null],"parts":[null,` +
		`{"partId":"0","body":{"data":"%%%"}},{"partId":"1","body":{"data":"eA"}}]}}`))
	if err != nil || len(parts) != 3 || parts[1].Data != nil || string(parts[2].Data) != "x" {
		t.Errorf("%+v, %v", parts, err)
	}
	if _, err := decodeMessage("1", []byte(`{"id":"1","payload":{"headers":[null],"parts":[null]}}`)); err != nil {
		t.Error(err)
	}
}

func TestBase64OfBothAlphabets(t *testing.T) {
	data := []byte{0xfb, 0xff, 0xfe, 1}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if got, err := decodeBase64(enc.EncodeToString(data)); err != nil || string(got) != string(data) {
			t.Errorf("%s: %x, %v", enc.EncodeToString(data), got, err)
		}
	}
}

func TestContentIsDecodedInPlace(t *testing.T) {
	for body, want := range map[string]string{
		`{"size":4,"data":"-__-AQ=="}`: "\xfb\xff\xfe\x01", `{"data":"+//+AQ"}`: "\xfb\xff\xfe\x01", `{"data":"-__-AQ\u003d="}`: "\xfb\xff\xfe\x01",
		`{"data":null}`: "", `{}`: "", `{"data":""}`: "",
	} {
		if got, err := decodeContent([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%s: %x, %v", body, got, err)
		}
	}
	for _, body := range []string{``, `null`, `[]`, `{"data":7}`, `{"data":"%%"}`, `{"data":"abc`} {
		if got, err := decodeContent([]byte(body)); err == nil {
			t.Errorf("%s was taken: %x", body, got)
		}
	}
}

// FuzzDecode: whatever Gmail sends, decoding does not panic and the columns are text that any database takes.
func FuzzDecode(f *testing.F) {
	for _, p := range []part{
		leaf("text/plain", "text/plain; charset=iso-2022-jp", "", "", "\x1b$B"), multipart("mixed", leaf("text/html", "", "", "", "\xff")),
		{"mimeType": "text/plain", "body": part{"attachmentId": "x"}},
		leaf("text/plain", "text/plain; charset=x-unknown", "", "", "caf\xe9\x00"), leaf("text/html", "text/html; charset=utf-16", "", "", "\x00\xd8x"),
		leaf("application/pdf", "", "attachment", "\x00../\xff.pdf", ""), multipart("mixed", leaf("message/rfc822", "", "inline", "", "From: x\n\n")),
		{"headers": []part{{"name": "Subject", "value": "=?utf-8?b?7aCA?= =?x?q?=00?="}, {"name": "To", "value": "=?iso-8859-1?q?=E9=00?="}}},
	} {
		raw, err := json.Marshal(part{"id": "1", "historyId": "5", "snippet": "a&amp;\u0000b", "payload": p})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = Parts(raw)
		d, err := decodeMessage("1", raw)
		good := err == nil
		if good {
			requireClean(t, d.finish())
		} else if !json.Valid(raw) {
			return
		}
		body := slices.Concat([]byte(`{"id":"9","historyId":"5","messages":[{"id":"0","snippet":"before"},`), raw,
			[]byte(`,{"id":"2","snippet":"after"}]}`))
		thread, err := decodeThread("9", body)
		n := len(thread.messages)
		if err != nil || n+thread.unreadable != 3 || good && n != 3 || n < 2 || thread.messages[0].message.Snippet != "before" ||
			thread.messages[n-1].message.Snippet != "after" {
			t.Errorf("neighbors are lost: %d messages, %d unreadable, %v", n, thread.unreadable, err)
		}
		if outline, err := decodeOutline("9", body); err != nil || len(outline.Messages)+outline.Unreadable != 3 {
			t.Errorf("outline of %d messages, %d unreadable, %v", len(outline.Messages), outline.Unreadable, err)
		}
	})
}

// requireClean holds the columns to be text that any database takes: UTF-8 without NUL.
func requireClean(t *testing.T, m consumers.Message) {
	t.Helper()
	columns := []string{m.Subject, m.From, m.To, m.Cc, m.Text, m.HTML, m.Snippet, m.RFCMessageID}
	for _, a := range m.Attachments {
		columns = append(columns, a.Filename, a.MIMEType, a.ContentID)
	}
	for _, s := range columns {
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			t.Errorf("%q is no clean text", s)
		}
	}
}

// BenchmarkDecodeThread: 20 messages of 8 kB text.
func BenchmarkDecodeThread(b *testing.B) {
	payload := multipart("alternative", leaf("text/plain", "text/plain; charset=utf-8", "", "", strings.Repeat("A line of text.\n", 250)),
		leaf("text/html", "text/html; charset=utf-8", "", "", strings.Repeat("<p>A line of text.</p>\n", 180)))
	var messages []part
	for i := range 20 {
		messages = append(messages, part{"id": fmt.Sprint(i), "threadId": "1", "historyId": "5", "payload": payload})
	}
	body, err := json.Marshal(part{"id": "1", "historyId": "5", "messages": messages})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := decodeThread("1", body); err != nil {
			b.Fatal(err)
		}
	}
}
