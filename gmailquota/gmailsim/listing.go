package gmailsim

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
)

// listing is a list call that goes over several pages. Its page tokens say where the last page ended and, for mail, at
// which history id the first page was made: what came later is not part of the listing, so that mail arriving
// meanwhile neither shifts a page nor moves a thread out of the part that is still to come.
type listing struct {
	kind string // of list: a token of one kind is no good for another
	hash uint32 // of the parameters: nor for another query
	page int    // makes tokens differ even after an empty page
}

// position is the last entry of a page.
type position struct {
	snapshot uint64 // history id of the mailbox at the first page
	date     int64
	number   uint64
	page     int
}

// newListing makes the listing of a call.
func newListing(c *call, kind string) *listing {
	h := fnv.New32a()
	for _, name := range []string{"labelIds", "q", "includeSpamTrash", "startHistoryId", "labelId", "historyTypes"} {
		values := slices.Sorted(slices.Values(c.query[name]))
		fmt.Fprintf(h, "%s=%q;", name, values)
	}
	return &listing{kind: kind, hash: h.Sum32()}
}

func (l *listing) token(p position) string {
	text := fmt.Sprintf("%s.%d.%x.%x.%x.%x", l.kind, p.page, l.hash, p.snapshot, p.date, p.number)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func (l *listing) parse(token string) (position, error) {
	bad := badRequest("Invalid pageToken")
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return position{}, bad
	}
	fields := strings.Split(string(text), ".")
	if len(fields) != 6 || fields[0] != l.kind || fields[2] != strconv.FormatUint(uint64(l.hash), 16) {
		return position{}, bad
	}
	page, err1 := strconv.Atoi(fields[1])
	snapshot, err2 := strconv.ParseUint(fields[3], 16, 64)
	date, err3 := strconv.ParseInt(fields[4], 16, 64)
	number, err4 := strconv.ParseUint(fields[5], 16, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return position{}, bad
	}
	l.page = page
	return position{snapshot: snapshot, date: date, number: number, page: page}, nil
}

// walk visits the mailbox's messages newest first, from behind the given page token, as they were when the listing
// began. visit reports false to stop before an entry.
func (b *mailbox) walk(l *listing, token string, visit func(*message) bool) (position, error) {
	pos := position{snapshot: b.historyID, date: math.MaxInt64, number: math.MaxUint64}
	i := len(b.order)
	if token != "" {
		var err error
		if pos, err = l.parse(token); err != nil {
			return position{}, err
		}
		i, _ = slices.BinarySearchFunc(b.order, &message{date: pos.date, number: pos.number}, compareMessages)
	}
	for i--; i >= 0; i-- {
		m := b.order[i]
		if m.added > pos.snapshot {
			continue
		}
		if !visit(m) {
			break
		}
		pos.date, pos.number = m.date, m.number
	}
	pos.page++
	return pos, nil
}

// emptyPage tells whether this page is to be empty but for its token, as Gmail's sometimes are.
func (s *Server) emptyPage() bool {
	return s.cfg.EmptyPages > 0 && s.pages.Add(1)%int64(s.cfg.EmptyPages) == 0
}

type messageRef struct {
	ID       string `json:"id"`
	ThreadID string `json:"threadId"`
}

type messageList struct {
	Messages      []messageRef `json:"messages,omitempty"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
	// Gmail's estimate is wrong most of the time; this one always is, so that nobody relies on it.
	ResultSizeEstimate int `json:"resultSizeEstimate"`
}

func estimate(n int) int { return n*7/5 + 1 }

func listMessages(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	match, err := b.filter(c)
	if err != nil {
		return nil, err
	}
	l := newListing(c, "m")
	limit, empty, more := c.maxResults(), c.s.emptyPage(), false
	var list messageList
	pos, err := b.walk(l, c.query.Get("pageToken"), func(m *message) bool {
		if !match(m) {
			return true
		}
		if len(list.Messages) == limit || empty {
			more = true
			return false
		}
		list.Messages = append(list.Messages, messageRef{m.id, m.thread.id})
		return true
	})
	if err != nil {
		return nil, err
	}
	if more {
		list.NextPageToken = l.token(pos)
	}
	list.ResultSizeEstimate = estimate(len(list.Messages))
	return list, nil
}

type threadRef struct {
	ID        string `json:"id"`
	Snippet   string `json:"snippet,omitempty"`
	HistoryID string `json:"historyId"`
}

type threadList struct {
	Threads            []threadRef `json:"threads,omitempty"`
	NextPageToken      string      `json:"nextPageToken,omitempty"`
	ResultSizeEstimate int         `json:"resultSizeEstimate"`
}

// listThreads lists a thread at the place of its newest message, if any of its messages matches.
func listThreads(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	match, err := b.filter(c)
	if err != nil {
		return nil, err
	}
	l := newListing(c, "t")
	snapshot := b.historyID
	if token := c.query.Get("pageToken"); token != "" {
		pos, err := l.parse(token)
		if err != nil {
			return nil, err
		}
		snapshot = pos.snapshot
	}
	limit, empty, more := c.maxResults(), c.s.emptyPage(), false
	var list threadList
	pos, err := b.walk(l, c.query.Get("pageToken"), func(m *message) bool {
		if m.thread.newest(snapshot) != m || !slices.ContainsFunc(m.thread.messages, match) {
			return true
		}
		if len(list.Threads) == limit || empty {
			more = true
			return false
		}
		newest := m.thread.messages[len(m.thread.messages)-1]
		list.Threads = append(list.Threads, threadRef{m.thread.id, newest.snippet, formatID(m.thread.historyID)})
		return true
	})
	if err != nil {
		return nil, err
	}
	if more {
		list.NextPageToken = l.token(pos)
	}
	list.ResultSizeEstimate = estimate(len(list.Threads))
	return list, nil
}

// newest returns the thread's last message as of a history id.
func (t *thread) newest(snapshot uint64) *message {
	for i := len(t.messages) - 1; i >= 0; i-- {
		if t.messages[i].added <= snapshot {
			return t.messages[i]
		}
	}
	return nil
}
