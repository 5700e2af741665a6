package gmailsim

import (
	"fmt"
	"slices"
	"strings"
)

var systemLabels = []string{
	"CHAT", "SENT", "INBOX", "IMPORTANT", "TRASH", "DRAFT", "SPAM", "STARRED", "UNREAD",
	"CATEGORY_PERSONAL", "CATEGORY_SOCIAL", "CATEGORY_PROMOTIONS", "CATEGORY_UPDATES", "CATEGORY_FORUMS",
}

// label is a label resource. The counts stand in labels.get only.
type label struct {
	ID                    string      `json:"id"`
	Name                  string      `json:"name"`
	MessageListVisibility string      `json:"messageListVisibility,omitempty"`
	LabelListVisibility   string      `json:"labelListVisibility,omitempty"`
	Type                  string      `json:"type"`
	Color                 *labelColor `json:"color,omitempty"`

	order int
}

type labelColor struct {
	TextColor       string `json:"textColor"`
	BackgroundColor string `json:"backgroundColor"`
}

func listLabels(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]label, 0, len(b.labels))
	for _, id := range systemLabels {
		list = append(list, *b.labels[id])
	}
	for _, l := range b.userLabels() {
		list = append(list, *l)
	}
	return map[string]any{"labels": list}, nil
}

// userLabels returns the labels that users made, oldest first.
func (b *mailbox) userLabels() []*label {
	var list []*label
	for _, l := range b.labels {
		if l.Type == "user" {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(x, y *label) int { return x.order - y.order })
	return list
}

func getLabel(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.labels[c.id()]
	if l == nil {
		return nil, notFound()
	}
	counted := struct {
		label
		MessagesTotal  int `json:"messagesTotal"`
		MessagesUnread int `json:"messagesUnread"`
		ThreadsTotal   int `json:"threadsTotal"`
		ThreadsUnread  int `json:"threadsUnread"`
	}{label: *l}
	threads, unread := map[*thread]bool{}, map[*thread]bool{}
	for _, m := range b.order {
		if !m.has(l.ID) {
			continue
		}
		counted.MessagesTotal++
		threads[m.thread] = true
		if m.has("UNREAD") {
			counted.MessagesUnread++
			unread[m.thread] = true
		}
	}
	counted.ThreadsTotal, counted.ThreadsUnread = len(threads), len(unread)
	return counted, nil
}

// checkLabels refuses labels that the mailbox does not have.
func (b *mailbox) checkLabels(ids ...[]string) error {
	for _, list := range ids {
		for _, id := range list {
			if b.labels[id] == nil {
				return badRequest("Invalid label: %s", id)
			}
		}
	}
	return nil
}

// checkChange refuses what users cannot change: SENT and DRAFT belong to Gmail.
func (b *mailbox) checkChange(add, remove []string) error {
	if len(add)+len(remove) == 0 {
		return badRequest("No label add or removes specified")
	}
	if len(add) > 100 || len(remove) > 100 {
		return badRequest("Too many labels: at most 100 can be added and 100 removed")
	}
	for _, id := range slices.Concat(add, remove) {
		if id == "SENT" || id == "DRAFT" {
			return badRequest("Invalid label: %s", id)
		}
	}
	return b.checkLabels(add, remove)
}

func (b *mailbox) labelByName(name string) *label {
	for _, l := range b.labels {
		if strings.EqualFold(l.Name, name) {
			return l
		}
	}
	return nil
}

// newLabel makes a user label; the caller has checked its name.
func (b *mailbox) newLabel(l label) *label {
	b.nextLabel++
	l.ID, l.Type, l.order = fmt.Sprintf("Label_%d", b.nextLabel), "user", b.nextLabel
	b.labels[l.ID] = &l
	return &l
}
