package consumers

import (
	"slices"
	"strings"
)

// Scope says which part of a mailbox is mirrored. The zero value is all of it.
//
// Query is Gmail's to evaluate: the listing of a run names the threads that it finds, and a resync removes the others. In
// between a thread that gets a message counts as found, and label changes bring nothing in that is not stored.
//
// The rest is a rule about one message's labels. The store applies it wherever a message or a label change is stored, so
// that import, history and resync cannot differ.
type Scope struct {
	Query     string   `json:"query,omitempty"`     // Gmail's search; empty: everything
	LabelsIn  []string `json:"labelsIn,omitempty"`  // ids or names, one of which a message must have; empty: any message
	LabelsOut []string `json:"labelsOut,omitempty"` // ids or names, none of which it may have
	NoSpam    bool     `json:"noSpam,omitempty"`
	NoTrash   bool     `json:"noTrash,omitempty"`
}

// Equal tells whether both say the same.
func (s Scope) Equal(o Scope) bool {
	return s.Query == o.Query && s.NoSpam == o.NoSpam && s.NoTrash == o.NoTrash &&
		slices.Equal(s.LabelsIn, o.LabelsIn) && slices.Equal(s.LabelsOut, o.LabelsOut)
}

// Resolve puts the ids of the mailbox's labels in the place of their names, which are the same in any letter case. What
// names no label stays: an id of a label that is not there.
func (s Scope) Resolve(labels []Label) Scope {
	id := func(name string) string {
		for _, l := range labels {
			if l.ID == name {
				return name
			}
		}
		for _, l := range labels {
			if strings.EqualFold(l.Name, name) {
				return l.ID
			}
		}
		return name
	}
	resolve := func(names []string) (ids []string) {
		for _, name := range names {
			ids = append(ids, id(name))
		}
		return ids
	}
	s.LabelsIn, s.LabelsOut = resolve(s.LabelsIn), resolve(s.LabelsOut)
	return s
}

// Unknown counts the configured labels that are none of the mailbox's, by id or name: misspelled, or not made yet.
func (s Scope) Unknown(labels []Label) int {
	n := 0
	r := s.Resolve(labels)
	for _, id := range slices.Concat(r.LabelsIn, r.LabelsOut) {
		if !slices.ContainsFunc(labels, func(l Label) bool { return l.ID == id }) {
			n++
		}
	}
	return n
}

// Has tells whether a message with these labels is inside. The scope must be resolved; its query is not looked at.
func (s Scope) Has(labels []string) bool {
	has := func(id string) bool { return slices.Contains(labels, id) }
	switch {
	case s.NoSpam && has("SPAM"), s.NoTrash && has("TRASH"), slices.ContainsFunc(s.LabelsOut, has):
		return false
	}
	return len(s.LabelsIn) == 0 || slices.ContainsFunc(s.LabelsIn, has)
}
