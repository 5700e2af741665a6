package gmailsim

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"mime"
	"mime/quotedprintable"
	"strings"
	"time"

	"golang.org/x/text/encoding/charmap"
)

// SampleMail makes n messages, the same ones for the same seed: conversations of one to some dozens of messages in
// several languages, plain text and HTML, different encodings and character sets, about 8 % with attachments. People
// and companies are invented. Messages come in the order of their dates.
func SampleMail(n int, seed uint64) [][]byte {
	w := &sampleWriter{r: rand.New(rand.NewPCG(seed, 0x676d61696c))}
	var mails []sampleMessage
	for len(mails) < n {
		mails = append(mails, w.conversation(n-len(mails))...)
	}
	sortByDate(mails)
	out := make([][]byte, len(mails))
	for i, m := range mails {
		out[i] = m.raw
	}
	return out
}

type sampleMessage struct {
	date time.Time
	raw  []byte
}

// sampleWriter writes mail with one source of chance.
type sampleWriter struct {
	r    *rand.Rand
	next int // makes Message-IDs unique
}

// Conversations begin in these 500 days, in the ten hours from seven o'clock.
var (
	sampleFrom = time.Date(2025, 6, 2, 7, 0, 0, 0, time.UTC)
	sampleDays = 500
)

func choose[T any](w *sampleWriter, list []T) T { return list[w.r.IntN(len(list))] }

func (w *sampleWriter) chance(percent int) bool { return w.r.IntN(100) < percent }

// conversation writes a thread of at most limit messages.
func (w *sampleWriter) conversation(limit int) []sampleMessage {
	lang := choose(w, sampleLanguages)
	topic := choose(w, lang.topics)
	subject := topic
	if w.chance(40) {
		subject = fmt.Sprintf("%s #%d", topic, 100+w.r.IntN(900))
	}
	size := 1
	switch {
	case w.chance(4):
		size = 15 + w.r.IntN(20)
	case w.chance(50):
		size = 2 + w.r.IntN(6)
	}
	people := w.participants(lang)
	at := sampleFrom.AddDate(0, 0, w.r.IntN(sampleDays)).Add(time.Duration(w.r.IntN(10*60*60)) * time.Second)
	var (
		list   []sampleMessage
		ids    []string
		quoted string
	)
	for i := range min(size, limit) {
		d := draftMessage{lang: lang, from: people[i%len(people)], to: people[(i+1)%len(people)], date: at, refs: ids}
		if len(people) > 2 && w.chance(60) {
			d.cc = people[2:]
		}
		w.next++
		d.id = fmt.Sprintf("%x.%d@%s", w.r.Uint64(), w.next, d.from.domain)
		d.subject = subject
		if i > 0 {
			d.subject = lang.reply + subject
		}
		d.paragraphs = w.paragraphs(lang, d.to)
		if i > 0 && w.chance(70) {
			d.quote = quoted
		}
		list = append(list, sampleMessage{at, w.write(d)})
		quoted = fmt.Sprintf("%s:\n> %s", fmt.Sprintf(lang.wrote, d.from.name), strings.Join(d.paragraphs[:1], "\n> "))
		ids = append(ids, d.id)
		at = at.Add(time.Duration(3+w.r.IntN(60*9)) * time.Minute)
	}
	return list
}

type samplePerson struct{ name, address, domain string }

func (p samplePerson) header() string {
	name := p.name
	for _, c := range name {
		if c > 0x7f {
			return mime.QEncoding.Encode("utf-8", name) + " <" + p.address + ">"
		}
	}
	return name + " <" + p.address + ">"
}

// participants chooses two to four people of the language.
func (w *sampleWriter) participants(lang *sampleLanguage) []samplePerson {
	var list []samplePerson
	order := w.r.Perm(len(lang.names))
	for _, i := range order[:min(2+w.r.IntN(3), len(order))] {
		name, local, _ := strings.Cut(lang.names[i], "|")
		domain := choose(w, sampleDomains)
		list = append(list, samplePerson{name, local + "@" + domain, domain})
	}
	return list
}

// paragraphs writes a greeting, some sentences of which none comes twice, and a closing line.
func (w *sampleWriter) paragraphs(lang *sampleLanguage, to samplePerson) []string {
	list := []string{fmt.Sprintf(lang.hello, strings.Fields(to.name)[0])}
	order := w.r.Perm(len(lang.sentences))
	for range 1 + w.r.IntN(4) {
		var sentences []string
		for range min(1+w.r.IntN(4), len(order)) {
			sentences = append(sentences, lang.sentences[order[0]])
			order = order[1:]
		}
		if len(sentences) > 0 {
			list = append(list, strings.Join(sentences, lang.gap))
		}
	}
	return append(list, lang.bye)
}

// draftMessage is a message before it is written out.
type draftMessage struct {
	lang       *sampleLanguage
	from, to   samplePerson
	cc         []samplePerson
	date       time.Time
	id         string
	refs       []string
	subject    string
	paragraphs []string
	quote      string
}

func (d draftMessage) text() string {
	s := strings.Join(d.paragraphs, "\r\n\r\n") + "\r\n" + d.from.name + "\r\n"
	if d.quote != "" {
		s += "\r\n" + strings.ReplaceAll(d.quote, "\n", "\r\n") + "\r\n"
	}
	return s
}

func (d draftMessage) html() string {
	var b strings.Builder
	b.WriteString("<html><head><style>p { margin: 0 0 1em }</style></head><body>\r\n")
	for _, p := range d.paragraphs {
		b.WriteString("<p>" + p + "</p>\r\n")
	}
	fmt.Fprintf(&b, "<p><b>%s</b><br><span style=\"color:#888\">%s</span></p>\r\n", d.from.name, d.from.domain)
	if d.quote != "" {
		b.WriteString("<blockquote>" + strings.ReplaceAll(d.quote, "\n> ", "<br>") + "</blockquote>\r\n")
	}
	b.WriteString("</body></html>\r\n")
	return b.String()
}

// write gives the message its headers and one of the forms that mail programs use.
func (w *sampleWriter) write(d draftMessage) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Received: from mx.%s (mx.%s [192.0.2.%d])\r\n\tby mail.example.net with ESMTPS id %x;\r\n\t%s\r\n",
		d.from.domain, d.from.domain, 1+w.r.IntN(250), w.r.Uint32(), d.date.Format(time.RFC1123Z))
	fmt.Fprintf(&b, "From: %s\r\nTo: %s\r\n", d.from.header(), d.to.header())
	if len(d.cc) > 0 {
		var list []string
		for _, p := range d.cc {
			list = append(list, p.header())
		}
		fmt.Fprintf(&b, "Cc: %s\r\n", strings.Join(list, ",\r\n "))
	}
	fmt.Fprintf(&b, "Subject: %s\r\nDate: %s\r\nMessage-ID: <%s>\r\n",
		w.encodeWords(d.subject), d.date.Format(time.RFC1123Z), d.id)
	if len(d.refs) > 0 {
		fmt.Fprintf(&b, "In-Reply-To: <%s>\r\nReferences: <%s>\r\n", d.refs[len(d.refs)-1],
			strings.Join(d.refs[max(0, len(d.refs)-12):], ">\r\n <"))
	}
	b.WriteString("MIME-Version: 1.0\r\n")
	b.WriteString(w.form(d))
	return b.Bytes()
}

func (w *sampleWriter) encodeWords(s string) string {
	if w.chance(50) {
		return mime.BEncoding.Encode("utf-8", s)
	}
	return mime.QEncoding.Encode("utf-8", s)
}

// form chooses the MIME structure: about half plain text, the rest HTML in the common shapes.
func (w *sampleWriter) form(d draftMessage) string {
	var body string
	switch n := w.r.IntN(100); {
	case n < 55:
		body = w.leaf("text/plain", d.text(), d.lang)
	case n < 65:
		body = w.leaf("text/html", d.html(), d.lang)
	case n < 70:
		image := strings.ReplaceAll(d.html(), "</body>", "<img src=\"cid:logo@"+d.from.domain+"\"></body>")
		logo := fmt.Sprintf("Content-Type: image/png\r\nContent-ID: <logo@%s>\r\nContent-Disposition: inline\r\n"+
			"Content-Transfer-Encoding: base64\r\n\r\n%s", d.from.domain, wrap64(w.bytes("\x89PNG\r\n\x1a\n", 400)))
		body = w.multipart("alternative", w.leaf("text/plain", d.text(), d.lang),
			w.multipart("related", w.leaf("text/html", image, d.lang), logo))
	default:
		body = w.multipart("alternative", w.leaf("text/plain", d.text(), d.lang), w.leaf("text/html", d.html(), d.lang))
	}
	if w.chance(8) {
		parts := []string{body, w.attachment()}
		if w.chance(25) {
			parts = append(parts, w.attachment())
		}
		body = w.multipart("mixed", parts...)
	}
	return body
}

// leaf writes a text part; its character set and encoding follow from the language and from chance.
func (w *sampleWriter) leaf(mimeType, text string, lang *sampleLanguage) string {
	charset, data := "utf-8", []byte(text)
	if latin, err := charmap.ISO8859_1.NewEncoder().Bytes(data); err == nil && lang.latin && w.chance(50) {
		charset, data = "iso-8859-1", latin
	}
	head := fmt.Sprintf("Content-Type: %s; charset=%s\r\n", mimeType, charset)
	switch {
	case isASCII(data) && w.chance(70):
		return head + "Content-Transfer-Encoding: 7bit\r\n\r\n" + text
	case w.chance(25) || lang.gap == "":
		return head + "Content-Transfer-Encoding: base64\r\n\r\n" + wrap64(data)
	case w.chance(10):
		return head + "Content-Transfer-Encoding: 8bit\r\n\r\n" + string(data)
	}
	var b bytes.Buffer
	q := quotedprintable.NewWriter(&b)
	_, _ = q.Write(data) // to memory
	_ = q.Close()
	return head + "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + b.String() + "\r\n"
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

func (w *sampleWriter) multipart(kind string, parts ...string) string {
	boundary := fmt.Sprintf("=_%016x", w.r.Uint64())
	var b strings.Builder
	fmt.Fprintf(&b, "Content-Type: multipart/%s;\r\n\tboundary=\"%s\"\r\n\r\n", kind, boundary)
	for _, p := range parts {
		fmt.Fprintf(&b, "--%s\r\n%s\r\n", boundary, p)
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.String()
}

// attachment writes a part with a file that begins like its type.
func (w *sampleWriter) attachment() string {
	file := choose(w, []struct{ name, mimeType, magic string }{
		{"invoice-%d.pdf", "application/pdf", "%PDF-1.7\n"},
		{"screenshot %d.png", "image/png", "\x89PNG\r\n\x1a\n"},
		{"report-%d.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "PK\x03\x04"},
		{"Übersicht-%d.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "PK\x03\x04"},
		{"figures-%d.csv", "text/csv", "month,units,revenue\n"},
	})
	name := fmt.Sprintf(file.name, 1+w.r.IntN(99))
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	return fmt.Sprintf("Content-Type: %s\r\nContent-Disposition: %s\r\nContent-Transfer-Encoding: base64\r\n\r\n%s",
		file.mimeType, disposition, wrap64(w.bytes(file.magic, 500+w.r.IntN(20_000))))
}

func (w *sampleWriter) bytes(magic string, n int) []byte {
	b := append([]byte(magic), make([]byte, n)...)
	for i := len(magic); i < len(b); i++ {
		b[i] = byte(w.r.Uint32())
	}
	return b
}

// wrap64 encodes in lines of 76 characters.
func wrap64(b []byte) string {
	s := base64.StdEncoding.EncodeToString(b)
	var out strings.Builder
	for len(s) > 76 {
		out.WriteString(s[:76] + "\r\n")
		s = s[76:]
	}
	return out.String() + s + "\r\n"
}
