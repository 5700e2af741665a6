package gmailsim

import "fmt"

type draftRef struct {
	ID      string `json:"id"`
	Message any    `json:"message"`
}

type newDraft struct {
	ID      string     `json:"id"`
	Message newMessage `json:"message"`
}

func listDrafts(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	match, err := b.filter(c)
	if err != nil {
		return nil, err
	}
	l := newListing(c, "d")
	limit, more := c.maxResults(), false
	var refs []draftRef
	ids := b.draftIDs()
	pos, err := b.walk(l, c.query.Get("pageToken"), func(m *message) bool {
		id, isDraft := ids[m]
		if !isDraft || !match(m) {
			return true
		}
		if len(refs) == limit {
			more = true
			return false
		}
		refs = append(refs, draftRef{id, messageRef{m.id, m.thread.id}})
		return true
	})
	if err != nil {
		return nil, err
	}
	list := struct {
		Drafts             []draftRef `json:"drafts,omitempty"`
		NextPageToken      string     `json:"nextPageToken,omitempty"`
		ResultSizeEstimate int        `json:"resultSizeEstimate"`
	}{Drafts: refs, ResultSizeEstimate: estimate(len(refs))}
	if more {
		list.NextPageToken = l.token(pos)
	}
	return list, nil
}

func (b *mailbox) draftIDs() map[*message]string {
	ids := make(map[*message]string, len(b.drafts))
	for id, m := range b.drafts {
		ids[m] = id
	}
	return ids
}

func (b *mailbox) draft(id string) (*message, error) {
	if m := b.drafts[id]; m != nil {
		return m, nil
	}
	return nil, notFound()
}

func getDraft(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := b.draft(c.id())
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"id":`), appendJSON(nil, c.id())...)
	out = append(out, `,"message":`...)
	out = c.s.appendMessage(out, m, c.format(), nil)
	return append(out, '}'), nil
}

func createDraft(c *call) (any, error) {
	var d newDraft
	raw, err := c.compose(&d, &d.Message)
	if err != nil {
		return nil, err
	}
	content := c.s.contents.get(raw)
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.threadFor(d.Message.ThreadID, content)
	if err != nil {
		return nil, err
	}
	b.nextDraft++
	id := fmt.Sprintf("r%d", 1_000_000_000_000_000_000+b.nextDraft*7_919)
	m := b.add(addition{content: content, labels: []string{"DRAFT"}, date: b.now(), thread: t})
	b.drafts[id] = m
	return draftRef{id, b.answer(m)}, nil
}

// updateDraft replaces a draft's message: the old one is deleted, and the new one has another id in the same thread.
func updateDraft(c *call) (any, error) {
	var d newDraft
	raw, err := c.compose(&d, &d.Message)
	if err != nil {
		return nil, err
	}
	content := c.s.contents.get(raw)
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	old, err := b.draft(c.id())
	if err != nil {
		return nil, err
	}
	m := b.add(addition{content: content, labels: []string{"DRAFT"}, date: b.now(), thread: old.thread})
	b.remove(old)
	b.drafts[c.id()] = m
	return draftRef{c.id(), b.answer(m)}, nil
}

func deleteDraft(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := b.draft(c.id())
	if err != nil {
		return nil, err
	}
	b.remove(m)
	return nil, nil
}

// sendDraft sends a draft: its message is deleted, and a sent one with another id takes its place in the thread.
func sendDraft(c *call) (any, error) {
	var d newDraft
	if err := c.decode(&d); err != nil {
		return nil, err
	}
	b := c.box
	b.mu.Lock()
	old, err := b.draft(d.ID)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	self, others, err := c.recipients(old.content)
	if err != nil {
		return nil, err
	}
	labels := []string{"SENT"}
	if self {
		labels = append(labels, "INBOX", "UNREAD")
	}
	b.mu.Lock()
	if b.drafts[d.ID] != old { // sent, changed or deleted meanwhile
		b.mu.Unlock()
		return nil, notFound()
	}
	m := b.add(addition{content: old.content, labels: labels, date: b.now(), thread: old.thread})
	b.remove(old)
	answer := b.answer(m)
	b.mu.Unlock()
	return answer, c.deliverTo(others, old.raw)
}
