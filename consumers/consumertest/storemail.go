package consumertest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

func (a *account) thread(id string) *thread {
	if a.threads[id] == nil {
		a.threads[id] = &thread{wants: map[string]consumers.HistoryID{}}
	}
	return a.threads[id]
}

// liveIn counts a thread's messages that are not deleted.
func (a *account) liveIn(threadID string) int {
	n := 0
	for _, m := range a.messages {
		if m.ThreadID == threadID && !m.deleted {
			n++
		}
	}
	return n
}

// whole tells whether all messages of a known thread are stored.
func (a *account) whole(threadID string) bool {
	th := a.threads[threadID]
	if th == nil || !th.complete || len(th.wants) > 0 {
		return false
	}
	for _, f := range a.fetches {
		if f.ThreadID == threadID {
			return false
		}
	}
	return true
}

// save stores a message unless its row is newer, of one outside the scope its ids and labels only.
func (a *account) save(m consumers.Message) {
	if old := a.messages[m.ID]; old != nil && old.HistoryID > m.HistoryID {
		return
	}
	m.Labels = slices.Compact(slices.Sorted(slices.Values(m.Labels)))
	a.messages[m.ID] = &message{Message: m}
	if !a.rule.Has(m.Labels) {
		a.messages[m.ID] = stub(m)
	}
}

// delete leaves a row without content.
func (a *account) delete(threadID, id string, at consumers.HistoryID) {
	a.messages[id] = &message{Message: consumers.Message{ID: id, ThreadID: threadID, HistoryID: at}, deleted: true}
}

// saveSnapshot stores a whole thread, fetched when the mailbox was past floor, and tells whether it has all that history
// named.
func (a *account) saveSnapshot(snapshot consumers.Thread, floor consumers.HistoryID) bool {
	in := map[string]bool{}
	for _, m := range snapshot.Messages {
		if snapshot.Outline {
			if have := a.messages[m.ID]; have == nil || have.HistoryID < m.HistoryID {
				return false
			}
		} else {
			m.ThreadID = snapshot.ID
			a.save(m)
		}
		in[m.ID] = true
	}
	for id, m := range a.messages {
		if m.ThreadID == snapshot.ID && !in[id] && (!m.deleted || m.outside) && m.HistoryID <= max(snapshot.HistoryID, floor) {
			a.delete(snapshot.ID, id, max(m.HistoryID, snapshot.HistoryID))
		}
	}
	th := a.thread(snapshot.ID)
	th.history = max(th.history, snapshot.HistoryID)
	maps.DeleteFunc(th.wants, func(_ string, at consumers.HistoryID) bool { return at <= snapshot.HistoryID })
	a.dropWants(th)
	if len(th.wants) > 0 {
		return false
	}
	th.complete, th.snapshot = true, max(th.snapshot, snapshot.HistoryID)
	a.dropThreadLetters(snapshot.ID)
	return true
}

// dropWants ends what was wanted and has come, or is known to be deleted.
func (a *account) dropWants(th *thread) {
	maps.DeleteFunc(th.wants, func(id string, at consumers.HistoryID) bool {
		m := a.messages[id]
		return m != nil && m.HistoryID >= at
	})
}

// fetchWanted puts what is still wanted of a thread, and not stored, on the retry list.
func (a *account) fetchWanted(threadID string, now time.Time) {
	th := a.thread(threadID)
	for id, at := range th.wants {
		if m := a.messages[id]; m == nil || m.deleted {
			a.fetches[id] = consumers.Fetch{MessageID: id, ThreadID: threadID, HistoryID: at, Due: now, Cause: "named by history, not in its thread"}
		}
	}
	clear(th.wants)
	if a.due.After(now) {
		a.due = now
	}
}

// Messages implements consumers.Store.
func (s *Store) Messages(ctx context.Context, id string, ids []string) (map[string]consumers.HistoryID, error) {
	have := map[string]consumers.HistoryID{}
	err := s.inAccount(ctx, "Messages", id, func(a *account) error {
		for _, id := range ids {
			if m := a.messages[id]; m != nil && (m.deleted && !m.outside || a.fetches[id].HistoryID <= m.HistoryID) {
				have[id] = m.HistoryID
			}
		}
		return nil
	})
	return have, err
}

// Threads implements consumers.Store.
func (s *Store) Threads(ctx context.Context, id string, ids []string) (map[string]consumers.ThreadState, error) {
	have := map[string]consumers.ThreadState{}
	err := s.inAccount(ctx, "Threads", id, func(a *account) error {
		for _, id := range ids {
			open := a.active != nil && a.active.threads[id] != nil && a.active.threads[id].state == "open"
			if open || a.threads[id] != nil {
				have[id] = consumers.ThreadState{Complete: a.whole(id), Open: open}
			}
		}
		return nil
	})
	return have, err
}

// DueFetches implements consumers.Store.
func (s *Store) DueFetches(ctx context.Context, id string, now time.Time, limit int) ([]consumers.Fetch, error) {
	var due []consumers.Fetch
	err := s.inAccount(ctx, "DueFetches", id, func(a *account) error {
		for _, f := range a.fetches {
			if !f.Due.After(now) {
				due = append(due, f)
			}
		}
		slices.SortFunc(due, func(x, y consumers.Fetch) int {
			if c := x.Due.Compare(y.Due); c != 0 {
				return c
			}
			return strings.Compare(x.MessageID, y.MessageID)
		})
		due = due[:min(limit, len(due))]
		return nil
	})
	return due, err
}

// HistoryDone implements consumers.Store.
func (s *Store) HistoryDone(ctx context.Context, id string, now, next time.Time) error {
	return s.inAccount(ctx, "HistoryDone", id, func(a *account) error {
		a.HistoryAt, a.ResyncAt, a.due = now, time.Time{}, next
		for _, f := range a.fetches {
			if f.Due.Before(a.due) {
				a.due = f.Due
			}
		}
		return nil
	})
}

// ApplyHistory implements consumers.Store.
func (s *Store) ApplyHistory(ctx context.Context, id string, step consumers.HistoryStep, now time.Time) error {
	return s.inAccount(ctx, "ApplyHistory", id, func(a *account) error {
		if step.Start > 0 && step.Start < a.resynced {
			return consumers.ErrOvertaken
		}
		for _, th := range step.Threads {
			if a.saveSnapshot(th, 0) && a.active != nil {
				a.active.settle(th.ID, "stored")
			}
		}
		a.saveFetched(step)
		marks := a.applyChanges(step)
		a.crossings(marks)
		a.applyGone(step, marks)
		a.updateRetries(step)
		a.writeWants(step, marks, now)
		if a.Cursor > 0 && a.Cursor < step.Cursor {
			a.Cursor, a.ResyncAt = step.Cursor, time.Time{}
		}
		return nil
	})
}

// saveFetched stores single messages. A thread that begins with one that was just added is complete.
func (a *account) saveFetched(step consumers.HistoryStep) {
	added := map[string]bool{}
	for _, c := range step.Changes {
		if c.Kind == consumers.MessageAdded {
			added[c.MessageID] = true
		}
	}
	messages := slices.Clone(step.Messages)
	slices.SortFunc(messages, func(x, y consumers.Message) int { return strings.Compare(x.ID, y.ID) })
	for _, m := range messages {
		fresh := a.threads[m.ThreadID] == nil
		th := a.thread(m.ThreadID)
		th.complete = th.complete || fresh && m.ID == m.ThreadID && added[m.ID]
		a.save(m)
	}
}

// mark is the newest record that needs a message stored which is not.
type mark struct {
	at      consumers.HistoryID
	thread  string
	added   bool // no mere label change of a message that was never stored
	entered bool // the message came inside the scope
}

// applyChanges applies records that are not older than the rows they name.
func (a *account) applyChanges(step consumers.HistoryStep) map[string]*mark {
	marks := map[string]*mark{}
	for _, c := range step.Changes {
		threadID := c.ThreadID
		m := a.messages[c.MessageID]
		if m != nil {
			threadID = m.ThreadID
		}
		th := a.thread(threadID)
		th.history = max(th.history, c.HistoryID)
		switch {
		case m != nil && c.HistoryID < m.HistoryID:
		case c.Kind == consumers.MessageDeleted:
			a.delete(threadID, c.MessageID, c.HistoryID)
			delete(marks, c.MessageID)
		case m == nil || m.deleted && !m.outside && c.HistoryID > m.HistoryID, a.hasGap(m, threadID, c):
			added := m != nil || c.Kind == consumers.MessageAdded || marks[c.MessageID] != nil && marks[c.MessageID].added
			marks[c.MessageID] = &mark{at: c.HistoryID, thread: threadID, added: added}
		case m.deleted && !m.outside:
		case c.Kind == consumers.LabelsAdded:
			m.HistoryID = c.HistoryID
			m.Labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Labels, c.Labels))))
		case c.Kind == consumers.LabelsRemoved:
			m.HistoryID = c.HistoryID
			m.Labels = slices.DeleteFunc(slices.Clone(m.Labels), func(l string) bool { return slices.Contains(c.Labels, l) })
		}
	}
	return marks
}

// hasGap tells that changes between a row and the record are unknown: a resync has moved the cursor over them, and has not
// got to the thread yet.
func (a *account) hasGap(m *message, threadID string, c consumers.Change) bool {
	r := a.active
	if r == nil || r.Kind != consumers.RunResync || m.HistoryID >= r.Baseline || c.HistoryID <= r.Baseline {
		return false
	}
	rt := r.threads[threadID]
	return rt == nil || rt.state != "stored" && rt.state != "gone"
}

// crossings acts on the messages that label changes took out of the scope or into it.
func (a *account) crossings(marks map[string]*mark) {
	for id, m := range a.messages {
		switch inside := a.rule.Has(m.Labels); {
		case !m.deleted && !inside:
			a.messages[id] = stub(m.Message)
		case m.outside && inside:
			delete(a.messages, id)
			marks[id] = &mark{at: m.HistoryID, thread: m.ThreadID, added: true, entered: true}
		}
	}
}

// applyGone stores as deleted what history named and what is not there.
func (a *account) applyGone(step consumers.HistoryStep, marks map[string]*mark) {
	for _, id := range step.Gone {
		f := a.fetches[id]
		at, threadID := f.HistoryID, f.ThreadID
		for _, c := range step.Changes {
			if c.MessageID == id {
				at, threadID = max(at, c.HistoryID), c.ThreadID
			}
		}
		if m := a.messages[id]; m == nil || m.HistoryID < at {
			if m != nil {
				threadID = m.ThreadID
			}
			a.delete(threadID, id, at)
		}
		if threadID != "" {
			a.thread(threadID)
		}
		delete(marks, id)
		delete(a.fetches, id)
	}
}

// updateRetries brings the retry list up to date. A message given up unstored leaves its thread wanting.
func (a *account) updateRetries(step consumers.HistoryStep) {
	for _, id := range step.Fetched {
		if f, listed := a.fetches[id]; listed && a.messages[id] == nil {
			a.thread(f.ThreadID).wantMessage(id, f.HistoryID)
		}
		delete(a.fetches, id)
	}
	for _, f := range step.Retry {
		f.HistoryID = max(f.HistoryID, a.fetches[f.MessageID].HistoryID)
		a.fetches[f.MessageID] = f
	}
	maps.DeleteFunc(a.fetches, func(id string, f consumers.Fetch) bool {
		m := a.messages[id]
		return m != nil && m.HistoryID >= f.HistoryID
	})
}

// writeWants notes the named messages that are not stored; where no run is to fetch the thread, such a message goes on the
// retry list.
func (a *account) writeWants(step consumers.HistoryStep, marks map[string]*mark, now time.Time) {
	for id, mark := range marks {
		th := a.thread(mark.thread)
		if _, listed := a.fetches[id]; listed || mark.at <= th.snapshot {
			continue
		}
		r := a.active
		open := r != nil && r.threads[mark.thread] != nil && r.threads[mark.thread].state == "open"
		if open || slices.Contains(step.Fetched, id) && !mark.entered {
			th.wantMessage(id, mark.at)
			continue
		}
		if a.rule.Query != "" && !mark.added {
			continue
		}
		a.fetches[id] = consumers.Fetch{MessageID: id, ThreadID: mark.thread, HistoryID: mark.at, Due: now,
			Cause: "named by history, not fetched"}
	}
	for _, th := range a.threads {
		a.dropWants(th)
	}
	a.dropMessageLetters()
}

// wantMessage notes that history named a message that is not stored, unless a newer snapshot came without it.
func (th *thread) wantMessage(id string, at consumers.HistoryID) {
	if at > th.snapshot {
		th.wants[id] = max(th.wants[id], at)
	}
}
