package gmailsim

import (
	"slices"
	"strings"
)

// labelEdit is a label resource as create, update and patch take it; what is absent stays.
type labelEdit struct {
	ID                    string      `json:"id"`
	Name                  *string     `json:"name"`
	Type                  string      `json:"type"`
	MessageListVisibility *string     `json:"messageListVisibility"`
	LabelListVisibility   *string     `json:"labelListVisibility"`
	Color                 *labelColor `json:"color"`
	MessagesTotal         int         `json:"messagesTotal"`
	MessagesUnread        int         `json:"messagesUnread"`
	ThreadsTotal          int         `json:"threadsTotal"`
	ThreadsUnread         int         `json:"threadsUnread"`
}

func (c *call) labelEdit() (labelEdit, error) {
	var e labelEdit
	if err := c.decode(&e); err != nil {
		return e, err
	}
	if v := e.MessageListVisibility; v != nil && !slices.Contains([]string{"show", "hide"}, *v) {
		return e, badRequest("Invalid value at 'label.message_list_visibility', %q", *v)
	}
	if v := e.LabelListVisibility; v != nil && !slices.Contains([]string{"labelShow", "labelShowIfUnread", "labelHide"}, *v) {
		return e, badRequest("Invalid value at 'label.label_list_visibility', %q", *v)
	}
	return e, nil
}

// checkName refuses a name that is empty, a system label's, or another label's.
func (b *mailbox) checkName(name string, of *label) error {
	if strings.TrimSpace(name) == "" || slices.Contains(systemLabels, strings.ToUpper(name)) {
		return badRequest("Invalid label name")
	}
	if l := b.labelByName(name); l != nil && l != of {
		return &apiError{409, "ALREADY_EXISTS", "global", "duplicate", "Label name exists or conflicts"}
	}
	return nil
}

func (l *label) apply(e labelEdit) {
	if e.Name != nil {
		l.Name = *e.Name
	}
	if e.MessageListVisibility != nil {
		l.MessageListVisibility = *e.MessageListVisibility
	}
	if e.LabelListVisibility != nil {
		l.LabelListVisibility = *e.LabelListVisibility
	}
	if e.Color != nil {
		l.Color = e.Color
	}
}

func createLabel(c *call) (any, error) {
	e, err := c.labelEdit()
	if err != nil {
		return nil, err
	}
	if e.Name == nil {
		return nil, badRequest("Invalid label name")
	}
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkName(*e.Name, nil); err != nil {
		return nil, err
	}
	l := b.newLabel(label{})
	l.apply(e)
	return *l, nil
}

// userLabel returns a label that its owner may change.
func (b *mailbox) userLabel(id string) (*label, error) {
	switch l := b.labels[id]; {
	case l == nil:
		return nil, notFound()
	case l.Type != "user":
		return nil, badRequest("Invalid update request: system labels cannot be changed")
	default:
		return l, nil
	}
}

// updateLabel answers labels.update and labels.patch.
func updateLabel(c *call) (any, error) {
	e, err := c.labelEdit()
	if err != nil {
		return nil, err
	}
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.userLabel(c.id())
	if err != nil {
		return nil, err
	}
	if e.Name == nil && c.to.method == "labels.update" {
		return nil, badRequest("Invalid label name")
	}
	if e.Name != nil {
		if err := b.checkName(*e.Name, l); err != nil {
			return nil, err
		}
	}
	l.apply(e)
	return *l, nil
}

// deleteLabel removes a label from the mailbox and from all messages.
func deleteLabel(c *call) (any, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.userLabel(c.id())
	if err != nil {
		return nil, err
	}
	for _, m := range b.order {
		b.relabel(m, nil, []string{l.ID})
	}
	delete(b.labels, l.ID)
	return nil, nil
}
