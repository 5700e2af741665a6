package gmailsim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// condition is one term of a search.
type condition func(*message) bool

// filter returns what a list call asks for: labelIds (all of them), q, and trash and spam only where asked. The
// caller holds mu.
func (b *mailbox) filter(c *call) (func(*message) bool, error) {
	labelIDs := c.query["labelIds"]
	if err := b.checkLabels(labelIDs); err != nil {
		return nil, err
	}
	conditions, scoped := b.parseQuery(c.query.Get("q"))
	all := scoped || c.query.Get("includeSpamTrash") == "true" ||
		slices.Contains(labelIDs, "TRASH") || slices.Contains(labelIDs, "SPAM")
	return func(m *message) bool {
		if !all && m.hidden() {
			return false
		}
		for _, id := range labelIDs {
			if !m.has(id) {
				return false
			}
		}
		for _, holds := range conditions {
			if !holds(m) {
				return false
			}
		}
		return true
	}, nil
}

// parseQuery reads the part of Gmail's search language that the simulator knows: from: to: cc: subject: label: in: is:
// has:attachment newer_than: older_than: after: before: rfc822msgid:, plain words and quoted phrases, each with an
// optional minus. scoped tells that the query names trash or spam, so that lists do not leave them out.
func (b *mailbox) parseQuery(q string) (conditions []condition, scoped bool) {
	for _, word := range splitQuery(q) {
		word, negative := strings.CutPrefix(word, "-")
		name, value, field := strings.Cut(word, ":")
		if !field {
			name, value = "", word
		}
		value = strings.ToLower(strings.Trim(value, `"`))
		if value == "" {
			continue
		}
		holds := b.condition(strings.ToLower(name), value, strings.ToLower(strings.Trim(word, `"`)))
		if in := name == "in" || name == "label" || name == "is"; in && slices.Contains([]string{"trash", "spam", "anywhere"}, value) {
			scoped = true
		}
		if negative {
			conditions = append(conditions, func(m *message) bool { return !holds(m) })
		} else {
			conditions = append(conditions, holds)
		}
	}
	return conditions, scoped
}

func (b *mailbox) condition(name, value, word string) condition {
	switch name {
	case "from", "to", "cc", "subject":
		return func(m *message) bool { return strings.Contains(strings.ToLower(m.header(name)), value) }
	case "rfc822msgid":
		return func(m *message) bool { return strings.EqualFold(m.messageID, strings.Trim(value, "<>")) }
	case "label", "in", "is":
		return b.labelCondition(value)
	case "has":
		return func(m *message) bool { return value == "attachment" && m.hasAttachment() }
	case "newer_than", "older_than", "after", "before":
		edge, ok := parseEdge(name, value, b.now())
		if !ok {
			return func(*message) bool { return false }
		}
		newer := name == "newer_than" || name == "after"
		return func(m *message) bool { return (m.date >= edge.UnixMilli()) == newer }
	}
	return func(m *message) bool { return strings.Contains(m.search, word) }
}

func (b *mailbox) labelCondition(value string) condition {
	switch value {
	case "anywhere":
		return func(*message) bool { return true }
	case "read":
		return func(m *message) bool { return !m.has("UNREAD") }
	}
	l := b.labels[strings.ToUpper(value)]
	if l == nil {
		for _, candidate := range b.labels {
			if strings.ReplaceAll(strings.ToLower(candidate.Name), " ", "-") == strings.ReplaceAll(value, " ", "-") ||
				strings.EqualFold(candidate.ID, value) {
				l = candidate
			}
		}
	}
	if l == nil {
		return func(*message) bool { return false }
	}
	return func(m *message) bool { return m.has(l.ID) }
}

// parseEdge reads 3d, 2w… (newer_than, older_than) and 2018/11/30 or seconds since the epoch (after, before).
func parseEdge(name, value string, now time.Time) (time.Time, bool) {
	if name == "after" || name == "before" {
		if t, err := time.Parse("2006/1/2", strings.ReplaceAll(value, "-", "/")); err == nil {
			return t, true
		}
		seconds, err := strconv.ParseInt(value, 10, 64)
		return time.Unix(seconds, 0), err == nil
	}
	n, err := strconv.Atoi(value[:len(value)-1])
	if err != nil || n < 0 {
		return time.Time{}, false
	}
	switch value[len(value)-1] {
	case 'h':
		return now.Add(-time.Duration(n) * time.Hour), true
	case 'd':
		return now.AddDate(0, 0, -n), true
	case 'w':
		return now.AddDate(0, 0, -7*n), true
	case 'm':
		return now.AddDate(0, -n, 0), true
	case 'y':
		return now.AddDate(-n, 0, 0), true
	}
	return time.Time{}, false
}

// splitQuery splits at spaces outside quotes.
func splitQuery(q string) []string {
	quoted := false
	return strings.FieldsFunc(q, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}

func (c *content) hasAttachment() bool {
	found := false
	c.root.walk(func(p *part) { found = found || p.filename != "" })
	return found
}
