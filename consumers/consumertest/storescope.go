package consumertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// SetScope implements consumers.Store.
func (s *Store) SetScope(ctx context.Context, id string, scope consumers.Scope, now time.Time) (bool, error) {
	changed := false
	err := s.inAccount(ctx, "SetScope", id, func(a *account) error {
		if changed = !a.Scope.Equal(scope); changed {
			a.Scope = scope
			s.rescope(a, scope.Resolve(a.labels), now)
		}
		return nil
	})
	return changed, err
}

// SaveLabels implements consumers.Store.
func (s *Store) SaveLabels(ctx context.Context, id string, labels []consumers.Label, now time.Time) error {
	return s.inAccount(ctx, "SaveLabels", id, func(a *account) error {
		a.labels = slices.Clone(labels)
		slices.SortFunc(a.labels, func(x, y consumers.Label) int { return strings.Compare(x.ID, y.ID) })
		if rule := a.Scope.Resolve(a.labels); !rule.Equal(a.rule) {
			s.rescope(a, rule, now)
		}
		return nil
	})
}

// rescope applies a new rule to what is stored, and has the mailbox listed again unless that is to come.
func (s *Store) rescope(a *account, rule consumers.Scope, now time.Time) {
	a.rule = rule
	for id, m := range a.messages {
		switch inside := rule.Has(m.Labels); {
		case !m.deleted && !inside:
			a.messages[id] = stub(m.Message)
		case m.outside && inside:
			delete(a.messages, id)
			a.thread(m.ThreadID).complete = false
		}
	}
	if a.Cursor == 0 || a.active != nil && a.active.Baseline == 0 {
		return
	}
	if r := a.active; r != nil {
		r.finished, a.active = true, nil
		r.threads, r.batches = map[string]*runThread{}, map[int64]*batch{}
	}
	s.startRun(a, consumers.RunResync, now)
}

// stub is the row of a message outside the scope.
func stub(m consumers.Message) *message {
	return &message{
		Message: consumers.Message{ID: m.ID, ThreadID: m.ThreadID, HistoryID: m.HistoryID, Labels: m.Labels},
		deleted: true, outside: true,
	}
}

// outsideIn tells whether a thread has messages outside the scope.
func (a *account) outsideIn(threadID string) bool {
	for _, m := range a.messages {
		if m.ThreadID == threadID && m.outside {
			return true
		}
	}
	return false
}

// removeAbsent removes what a listing by query did not name and what has not changed since its baseline.
func (a *account) removeAbsent(r *run) {
	for id, th := range a.threads {
		if r.threads[id] != nil || th.history > r.Baseline {
			continue
		}
		for messageID, m := range a.messages {
			if m.ThreadID == id {
				delete(a.messages, messageID)
			}
		}
		for messageID, f := range a.fetches {
			if f.ThreadID == id {
				delete(a.fetches, messageID)
			}
		}
		a.dropThreadLetters(id)
		delete(a.threads, id)
	}
}
