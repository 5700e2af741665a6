package gmailsim

import (
	"encoding/json"
	"slices"
	"sort"
	"strconv"
	"time"
)

// historyKind is a kind of change in the spelling of the historyTypes parameter.
type historyKind string

const (
	messageAdded   historyKind = "messageAdded"
	messageDeleted historyKind = "messageDeleted"
	labelAdded     historyKind = "labelAdded"
	labelRemoved   historyKind = "labelRemoved"
)

// field is the kind's name in an answer.
func (k historyKind) field() string {
	switch k {
	case messageAdded:
		return "messagesAdded"
	case messageDeleted:
		return "messagesDeleted"
	case labelAdded:
		return "labelsAdded"
	}
	return "labelsRemoved"
}

// record is one change of one message.
type record struct {
	id              uint64
	at              time.Time
	kind            historyKind
	message, thread string
	labels          []string // the message's, after the change
	changed         []string // labels added or removed
}

func (b *mailbox) record(r record) {
	r.at = b.now()
	r.labels = slices.Clone(r.labels)
	b.history = append(b.history, r)
	b.expire(r.at)
	if b.watch.wants(r, r.at) {
		b.watch.pending = true
		b.changed(b)
	}
}

// expire forgets history that is older than the retention.
func (b *mailbox) expire(now time.Time) {
	if b.retention == 0 {
		return
	}
	n := 0
	for n < len(b.history) && now.Sub(b.history[n].at) > b.retention {
		n++
	}
	if n > 0 {
		b.floor = b.history[n-1].id
		b.history = b.history[n:]
	}
}

// expireHistory forgets all history up to now: only the current history id stays valid.
func (b *mailbox) expireHistory() {
	b.floor = b.historyID
	b.history = nil
}

type historyMessage struct {
	ID       string   `json:"id"`
	ThreadID string   `json:"threadId"`
	LabelIDs []string `json:"labelIds,omitempty"`
}

type historyList struct {
	History       []json.RawMessage `json:"history,omitempty"`
	NextPageToken string            `json:"nextPageToken,omitempty"`
	HistoryID     string            `json:"historyId"`
}

// listHistory answers history.list.
func listHistory(c *call) (any, error) {
	start, err := strconv.ParseUint(c.query.Get("startHistoryId"), 10, 64)
	if err != nil {
		return nil, badRequest("Missing or invalid startHistoryId")
	}
	labelID, kinds := c.query.Get("labelId"), c.query["historyTypes"]
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(b.now())
	if start < b.floor || start > b.historyID {
		return nil, notFound()
	}
	if labelID != "" && b.labels[labelID] == nil {
		return nil, notFound()
	}
	listing := newListing(c, "h")
	after := start
	if token := c.query.Get("pageToken"); token != "" {
		pos, err := listing.parse(token)
		if err != nil {
			return nil, err
		}
		after = pos.number
		if after < b.floor {
			return nil, notFound()
		}
	}
	return b.historyPage(c, listing, after, labelID, kinds), nil
}

func (b *mailbox) historyPage(c *call, l *listing, after uint64, labelID string, kinds []string) historyList {
	page := historyList{HistoryID: formatID(b.historyID)}
	if c.s.emptyPage() {
		page.NextPageToken = l.token(position{number: after, page: l.page + 1})
		return page
	}
	limit := c.maxResults()
	first := sort.Search(len(b.history), func(i int) bool { return b.history[i].id > after })
	for _, r := range b.history[first:] {
		if len(kinds) > 0 && !slices.Contains(kinds, string(r.kind)) {
			continue
		}
		if labelID != "" && !slices.Contains(r.labels, labelID) && !slices.Contains(r.changed, labelID) {
			continue
		}
		if len(page.History) == limit {
			page.NextPageToken = l.token(position{number: after, page: l.page + 1})
			return page
		}
		page.History = append(page.History, r.render())
		after = r.id
	}
	return page
}

func (r record) render() json.RawMessage {
	type change struct {
		Message  historyMessage `json:"message"`
		LabelIDs []string       `json:"labelIds,omitempty"`
	}
	out := append([]byte(`{"id":"`), formatID(r.id)...)
	out = append(out, `","messages":[`...)
	out = appendJSON(out, historyMessage{ID: r.message, ThreadID: r.thread})
	out = append(out, `],"`...)
	out = append(out, r.kind.field()...)
	out = append(out, `":[`...)
	out = appendJSON(out, change{
		Message:  historyMessage{ID: r.message, ThreadID: r.thread, LabelIDs: r.labels},
		LabelIDs: r.changed,
	})
	return append(out, `]}`...)
}
