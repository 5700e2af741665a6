package gmailsim

import (
	"bytes"
	"crypto/sha256"
	"html"
	"net/mail"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	nethtml "golang.org/x/net/html"
)

// content is what never changes about a message: it is parsed once and shared by all mailboxes that hold the message.
type content struct {
	raw     []byte
	root    *part
	parts   map[string]*part // by part id
	snippet string           // HTML-escaped, as Gmail's
	date    time.Time        // of the Date header; zero if it cannot be read

	messageID string   // without angle brackets
	refs      []string // References and In-Reply-To, without angle brackets
	subject   string   // normalized for threading
	search    string   // lower-case text for plain words of q

	fullOnce sync.Once
	full     []segment // the rendered payload, see payload
}

func newContent(raw []byte) *content {
	c := &content{raw: bytes.Clone(raw), parts: map[string]*part{}}
	c.root = parseMessage(c.raw)
	cleanHeaders(c.root)
	c.root.walk(func(p *part) { c.parts[p.id] = p })
	text := bodyText(c.root)
	c.snippet = makeSnippet(text)
	if d, err := mail.ParseDate(headerValue(c.root.headers, "Date")); err == nil {
		c.date = d
	}
	c.messageID = firstID(headerValue(c.root.headers, "Message-ID"))
	c.refs = append(messageIDs(headerValue(c.root.headers, "References")),
		messageIDs(headerValue(c.root.headers, "In-Reply-To"))...)
	subject := decodeWords(headerValue(c.root.headers, "Subject"))
	c.subject = normalizeSubject(subject)
	c.search = strings.ToLower(subject + "\n" + c.header("From") + "\n" + text)
	return c
}

// header returns a decoded top-level header.
func (c *content) header(name string) string { return decodeWords(headerValue(c.root.headers, name)) }

// contentStore shares contents between mailboxes, by the hash of the raw bytes. It holds no content that no mailbox
// holds any more.
type contentStore struct {
	mu sync.Mutex
	m  map[contentKey]weak.Pointer[content]
}

type contentKey [sha256.Size]byte

func (cs *contentStore) get(raw []byte) *content {
	key := contentKey(sha256.Sum256(raw))
	if c := cs.lookup(key); c != nil {
		return c
	}
	made := newContent(raw)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.m[key].Value(); c != nil {
		return c
	}
	cs.m[key] = weak.Make(made)
	runtime.AddCleanup(made, cs.drop, key)
	return made
}

func (cs *contentStore) lookup(key contentKey) *content {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.m[key].Value()
}

// drop forgets a content that was collected, unless the same message has come again.
func (cs *contentStore) drop(key contentKey) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.m[key].Value() == nil {
		delete(cs.m, key)
	}
}

// bodyText is the text of the first text/plain part that is no attachment, else of the first text/html part.
func bodyText(root *part) string {
	var plain, markup *part
	root.walk(func(p *part) {
		switch {
		case p.filename != "" || p.parts != nil:
		case p.mimeType == "text/plain" && plain == nil:
			plain = p
		case p.mimeType == "text/html" && markup == nil:
			markup = p
		}
	})
	if plain != nil && len(bytes.TrimSpace(plain.data)) > 0 {
		return toUTF8(plain.data, plain.charset)
	}
	if markup != nil {
		return htmlText(toUTF8(markup.data, markup.charset))
	}
	return ""
}

func htmlText(s string) string {
	var b strings.Builder
	z := nethtml.NewTokenizer(strings.NewReader(s))
	hidden := 0
	for {
		switch z.Next() {
		case nethtml.ErrorToken:
			return b.String()
		case nethtml.TextToken:
			if hidden == 0 {
				b.Write(z.Text())
				b.WriteByte(' ')
			}
		case nethtml.StartTagToken:
			if name, _ := z.TagName(); isHidden(name) {
				hidden++
			}
		case nethtml.EndTagToken:
			if name, _ := z.TagName(); isHidden(name) && hidden > 0 {
				hidden--
			}
		}
	}
}

func isHidden(tag []byte) bool {
	return string(tag) == "style" || string(tag) == "script" || string(tag) == "title"
}

// snippetRunes is about what Gmail shows.
const snippetRunes = 180

func makeSnippet(text string) string {
	if len(text) > 20*snippetRunes {
		text = strings.ToValidUTF8(text[:20*snippetRunes], "")
	}
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > snippetRunes {
		runes = runes[:snippetRunes]
	}
	return html.EscapeString(string(runes))
}

// messageIDs returns the ids in angle brackets.
func messageIDs(s string) []string {
	var ids []string
	for _, piece := range strings.Split(s, "<")[1:] {
		if id, _, ok := strings.Cut(piece, ">"); ok && id != "" {
			ids = append(ids, strings.Join(strings.Fields(id), ""))
		}
	}
	return ids
}

func firstID(s string) string {
	if ids := messageIDs(s); len(ids) > 0 {
		return ids[0]
	}
	return strings.TrimSpace(s)
}

// normalizeSubject removes reply and forward marks, list tags, and differences of case and space.
func normalizeSubject(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(s)), " ")
	for {
		cut := s
		for _, mark := range []string{"re:", "fw:", "fwd:", "aw:", "sv:", "antw:", "wg:", "odp:", "rv:"} {
			cut = strings.TrimSpace(strings.TrimPrefix(cut, mark))
		}
		if strings.HasPrefix(cut, "[") {
			if tag, rest, ok := strings.Cut(cut, "]"); ok && len(tag) < 40 && strings.TrimSpace(rest) != "" {
				cut = strings.TrimSpace(rest)
			}
		}
		if cut == s {
			return s
		}
		s = cut
	}
}
