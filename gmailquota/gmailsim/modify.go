package gmailsim

import "slices"

// labelChange is the body of the modify methods.
type labelChange struct {
	IDs            []string `json:"ids"` // batchModify and batchDelete only
	AddLabelIDs    []string `json:"addLabelIds"`
	RemoveLabelIDs []string `json:"removeLabelIds"`
}

// onMessage answers with the message, in minimal form, after a change.
func onMessage(change func(*mailbox, *message)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		b := c.box
		b.mu.Lock()
		defer b.mu.Unlock()
		m, err := b.message(c.id())
		if err != nil {
			return nil, err
		}
		change(b, m)
		return c.s.appendMessage(nil, m, "minimal", nil), nil
	}
}

// onThread changes all messages of a thread and answers with it, in minimal form.
func onThread(change func(*mailbox, *message)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		b := c.box
		b.mu.Lock()
		defer b.mu.Unlock()
		t, err := b.thread(c.id())
		if err != nil {
			return nil, err
		}
		for _, m := range t.messages {
			change(b, m)
		}
		return c.s.appendThread(nil, t, "minimal", nil), nil
	}
}

func (c *call) labelChange() (labelChange, error) {
	var change labelChange
	err := c.decode(&change)
	if err == nil && (len(change.IDs) > 0) != (c.to.method == "messages.batchModify") {
		err = badRequest("No message ids specified, or ids where none are taken")
	}
	if err == nil {
		c.box.mu.Lock()
		defer c.box.mu.Unlock()
		err = c.box.checkChange(change.AddLabelIDs, change.RemoveLabelIDs)
	}
	return change, err
}

func modifyMessage(c *call) (any, error) {
	change, err := c.labelChange()
	if err != nil {
		return nil, err
	}
	return onMessage(func(b *mailbox, m *message) { b.relabel(m, change.AddLabelIDs, change.RemoveLabelIDs) })(c)
}

func modifyThread(c *call) (any, error) {
	change, err := c.labelChange()
	if err != nil {
		return nil, err
	}
	return onThread(func(b *mailbox, m *message) { b.relabel(m, change.AddLabelIDs, change.RemoveLabelIDs) })(c)
}

func deleteMessage(c *call) (any, error) {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	m, err := c.box.message(c.id())
	if err != nil {
		return nil, err
	}
	c.box.remove(m)
	return nil, nil
}

func deleteThread(c *call) (any, error) {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	t, err := c.box.thread(c.id())
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Clone(t.messages) {
		c.box.remove(m)
	}
	return nil, nil
}

// maxBulk is how many ids batchModify and batchDelete take.
const maxBulk = 1000

func batchModify(c *call) (any, error) {
	change, err := c.labelChange()
	if err != nil {
		return nil, err
	}
	return c.bulk(change.IDs, func(b *mailbox, m *message) { b.relabel(m, change.AddLabelIDs, change.RemoveLabelIDs) })
}

func batchDelete(c *call) (any, error) {
	var req struct {
		IDs []string `json:"ids"`
	}
	if err := c.decode(&req); err != nil {
		return nil, err
	}
	return c.bulk(req.IDs, (*mailbox).remove)
}

// bulk changes messages by their ids; ids that name nothing are passed over, as Gmail does.
func (c *call) bulk(ids []string, change func(*mailbox, *message)) (any, error) {
	if len(ids) == 0 || len(ids) > maxBulk {
		return nil, badRequest("Want 1 to %d message ids", maxBulk)
	}
	if slices.ContainsFunc(ids, func(id string) bool { return !validID(id) }) {
		return nil, badRequest("Invalid id value")
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	for _, id := range ids {
		if m, err := c.box.message(id); err == nil {
			change(c.box, m)
		}
	}
	return nil, nil
}
