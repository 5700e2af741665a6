package gmailsim

import (
	"bytes"
	"encoding/json"
	"strings"
)

// selector is a parsed fields parameter: the names to keep and what to keep below them.
type selector struct {
	children map[string]*selector // nil: keep everything below
}

// fieldNames are all names in Gmail's resources; a selection of another one is an error.
var fieldNames = func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
		* id threadId labelIds snippet historyId internalDate payload sizeEstimate raw classificationLabelValues
		partId mimeType filename headers name value body attachmentId size data parts
		messages threads history nextPageToken resultSizeEstimate messagesAdded messagesDeleted labelsAdded labelsRemoved message
		emailAddress messagesTotal threadsTotal expiration
		labels type messageListVisibility labelListVisibility messagesUnread threadsUnread color textColor backgroundColor
		drafts`) {
		names[name] = true
	}
	return names
}()

// parseFields reads "a,b(c,d/e)"; nil means everything.
func parseFields(s string) (*selector, error) {
	if s == "" {
		return nil, nil
	}
	p := fieldParser{rest: s}
	root := &selector{}
	if !p.list(root, 0) || p.rest != "" {
		return nil, badRequest("Invalid field selection %s", s)
	}
	return root, nil
}

type fieldParser struct{ rest string }

// list reads names up to a closing parenthesis or the end.
func (p *fieldParser) list(into *selector, depth int) bool {
	for {
		if !p.path(into, depth) {
			return false
		}
		if !p.eat(",") {
			return true
		}
	}
}

// path reads a/b/c, the last with an optional list in parentheses.
func (p *fieldParser) path(into *selector, depth int) bool {
	name := strings.TrimSpace(p.rest)
	if i := strings.IndexAny(name, ",/()"); i >= 0 {
		name = name[:i]
	}
	p.rest = strings.TrimSpace(p.rest)[len(name):]
	name = strings.TrimSpace(name)
	if !fieldNames[name] || depth > maxDepth {
		return false
	}
	if into.children == nil {
		into.children = map[string]*selector{}
	}
	child, again := into.children[name]
	if !again {
		child = &selector{}
		into.children[name] = child
	}
	switch {
	case p.eat("/"):
		return (!again || child.children != nil) && p.path(child, depth+1)
	case p.eat("("):
		return p.list(child, depth+1) && p.eat(")")
	}
	child.children = nil
	return true
}

func (p *fieldParser) eat(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

// apply keeps what is selected of a JSON document.
func (s *selector) apply(doc []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(s.keep(v))
}

func (s *selector) keep(v any) any {
	if s.children == nil {
		return v
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = s.keep(v[i])
		}
		return v
	case map[string]any:
		kept := map[string]any{}
		for name, value := range v {
			child := s.children[name]
			if child == nil {
				child = s.children["*"]
			}
			if child != nil && (child.children == nil || isComposite(value)) {
				kept[name] = child.keep(value)
			}
		}
		return kept
	}
	return v
}

func isComposite(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}
