package gmailsim

import (
	"fmt"
	"strings"
	"testing"
)

// shape writes a tree as "type[child child]", leaves with their data.
func shape(p *part) string {
	s := p.mimeType
	if p.filename != "" {
		s += "(" + p.filename + ")"
	}
	if !p.multipart() {
		s += fmt.Sprintf("%q", p.data)
	}
	if len(p.parts) == 0 {
		return s
	}
	var children []string
	for _, child := range p.parts {
		children = append(children, shape(child))
	}
	return s + "[" + strings.Join(children, " ") + "]"
}

func TestBrokenMailKeepsItsTree(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"no headers at all":     {"Just text\n", `text/plain"Just text\n"`},
		"headers only":          {"Subject: x\n", `text/plain""`},
		"empty":                 {"", `text/plain""`},
		"mail file line first":  {"From a@b Mon Oct  1 10:00:00 2018\nSubject: x\n\nt", `text/plain"t"`},
		"type without a slash":  {"Content-Type: html\n\nt", `text/plain"t"`},
		"type with odd bytes":   {"Content-Type: text/ht(ml\n\nt", `text/plain"t"`},
		"unknown encoding":      {"Content-Transfer-Encoding: x-uu\n\nt=20", `text/plain"t=20"`},
		"encoding in capitals":  {"Content-Transfer-Encoding: BASE64\n\naGk=", `text/plain"hi"`},
		"base64 with rubbish":   {"Content-Transfer-Encoding: base64\n\na*G\nk=!", `text/plain"hi"`},
		"base64 cut short":      {"Content-Transfer-Encoding: base64\n\naGlhb", `text/plain"hia"`},
		"base64 joined":         {"Content-Transfer-Encoding: base64\n\naGk=aGk=", `text/plain"hihi"`},
		"quoted-printable odd":  {"Content-Transfer-Encoding: quoted-printable\n\na=3db=\nc=ZZd=4", `text/plain"a=bc=ZZd=4"`},
		"no end boundary":       {"Content-Type: multipart/mixed; boundary=b\n\n--b\n\none\n--b\n\ntwo", `multipart/mixed[text/plain"one" text/plain"two"]`},
		"boundary never comes":  {"Content-Type: multipart/mixed; boundary=b\n\ntext", `multipart/mixed"text"`},
		"no boundary":           {"Content-Type: multipart/mixed\n\n--b\n\ntext", `multipart/mixed"--b\n\ntext"`},
		"boundary with spaces":  {"Content-Type: multipart/mixed; boundary=\"a b\"\n\npre\n--a b  \n\none\n--a b--\npost", `multipart/mixed[text/plain"one"]`},
		"one begins the other":  {"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/alternative; boundary=bb\n\n--bb\n\none\n--bb--\n--b--", `multipart/mixed[multipart/alternative[text/plain"one"]]`},
		"a digest":              {"Content-Type: multipart/digest; boundary=b\n\n--b\n\nSubject: x\n\none\n--b--", `multipart/digest[message/rfc822"Subject: x\n\none"[text/plain"one"]]`},
		"a message in a mail":   {"Content-Type: message/rfc822\n\nContent-Type: text/html\n\n<p>", `message/rfc822"Content-Type: text/html\n\n<p>"[text/html"<p>"]`},
		"two names":             {"Content-Type: a/b; name=x; name=y\n\nt", `a/b(x)"t"`},
		"name without quotes":   {"Content-Type: a/b; name=x y.txt\n\nt", `a/b(x y.txt)"t"`},
		"semicolon in quotes":   {"Content-Type: a/b; name=\"x;\\\"y\"\n\nt", `a/b(x;"y)"t"`},
		"encoded name":          {"Content-Disposition: attachment; filename=\"=?iso-8859-1?q?=FCb?=\"\n\nt", `text/plain(üb)"t"`},
		"extended name":         {"Content-Disposition: attachment; filename*=iso-8859-1''%FCb\n\nt", `text/plain(üb)"t"`},
		"continued name":        {"Content-Disposition: attachment; filename*0*=utf-8''%C3%BC; filename*1=b; filename*2*=%20c\n\nt", `text/plain(üb c)"t"`},
		"percent in a name":     {"Content-Disposition: attachment; filename*=utf-8''100%\n\nt", `text/plain(100%)"t"`},
		"CRLF":                  {"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\none\r\n\r\n--b--\r\n", `multipart/mixed[text/plain"one\r\n"]`},
		"an empty part":         {"Content-Type: multipart/mixed; boundary=b\n\n--b\n--b\n\n\n--b--", `multipart/mixed[text/plain"" text/plain""]`},
		"a header without name": {": x\nSubject: y\n\nt", `text/plain": x\nSubject: y\n\nt"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shape(parseMessage([]byte(c.raw))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestHeadersKeepOrderAndValues(t *testing.T) {
	raw := "Received: one;\r\n\tfolded  twice\r\nX-Empty:\r\nreceived: two\r\nSubject: =?utf-8?q?=C3=BC?= \xe9\r\nX-Wrapped: badly\r\nwrapped\r\n\r\n"
	c := newContent([]byte(raw))
	got := fmt.Sprintf("%q", c.root.headers)
	want := fmt.Sprintf("%q", []Header{
		{"Received", "one;\tfolded  twice"}, {"X-Empty", ""}, {"received", "two"},
		{"Subject", "=?utf-8?q?=C3=BC?= \uFFFD"}, {"X-Wrapped", "badlywrapped"},
	})
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// MemberJunction/MJ#2874: bodies deep in the tree.
func TestDeepNestingEnds(t *testing.T) {
	raw := "text"
	for i := range 3 * maxDepth {
		raw = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d.\n\n--b%d.\n%s\n--b%d.--\n", i, i, raw, i)
	}
	depth := 0
	for p := parseMessage([]byte(raw)); len(p.parts) > 0; p = p.parts[0] {
		depth++
	}
	if depth != maxDepth {
		t.Errorf("the tree is %d deep, want %d", depth, maxDepth)
	}
}

func TestSnippetIsTheTextThatPeopleSee(t *testing.T) {
	for raw, want := range map[string]string{
		"\nHello\n\n  <you> & me": "Hello &lt;you&gt; &amp; me",
		"Content-Type: text/html\n\n<style>p{}</style><p>Hi &amp; <b>bye</b>": "Hi &amp; bye",
		"Content-Type: text/plain; charset=iso-8859-1\n\n\xfcber":             "über",
		"Content-Type: text/plain; charset=x-unknown\n\n\xfcber":              "\uFFFDber",
		"Content-Type: image/png\n\nxxx":                                      "",
		"\n" + strings.Repeat("ü", 500):                                       strings.Repeat("ü", snippetRunes),
	} {
		if got := newContent([]byte(raw)).snippet; got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte("Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Transfer-Encoding: base64\n\naGk=\n--b--"))
	f.Add([]byte("Content-Type: message/rfc822\nContent-Disposition: x; filename*0*=utf-8''%C3; filename*1=\"\n\n\xff: \x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := newContent(raw)
		c.payload(10)
		c.root.walk(func(p *part) {
			if p.parts != nil && len(p.id) > 0 && c.parts[p.id] != p {
				t.Errorf("part %q is there twice", p.id)
			}
		})
	})
}
