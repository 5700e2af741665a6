package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// Messages implements consumers.Store.
func (s *Store) Messages(ctx context.Context, account string, ids []string) (map[string]consumers.HistoryID, error) {
	have := make(map[string]consumers.HistoryID, len(ids))
	err := s.rows(ctx, `SELECT m.id, m.history_id FROM json_each(?1) j JOIN messages m ON m.account_id = ?2 AND m.id = j.value
		WHERE m.deleted = 1 AND m.outside = 0 OR NOT EXISTS (SELECT 1 FROM fetches f WHERE f.account_id = ?2 AND f.message_id = m.id AND f.history_id > m.history_id)`,
		[]any{mailstore.IDList(ids), account}, func(r *sql.Rows) error {
			var id string
			var h consumers.HistoryID
			err := r.Scan(&id, hist(&h))
			have[id] = h
			return err
		})
	if err == nil && len(have) == 0 {
		_, err = s.Account(ctx, account)
	}
	return have, err
}

const threadStates = `SELECT j.value, t.id IS NOT NULL,
		COALESCE(t.complete, 0) AND NOT EXISTS (SELECT 1 FROM wants w WHERE w.account_id = ?1 AND w.thread_id = j.value)
		AND NOT EXISTS (SELECT 1 FROM fetches f WHERE f.account_id = ?1 AND f.thread_id = j.value),
		EXISTS (SELECT 1 FROM runs r JOIN run_threads rt ON rt.run_id = r.id AND rt.thread_id = j.value AND rt.state = 'open'
			WHERE r.account_id = ?1 AND r.finished_at = 0)
	FROM json_each(?2) j LEFT JOIN threads t ON t.account_id = ?1 AND t.id = j.value`

// Threads implements consumers.Store. A thread with messages on the retry list is not complete.
func (s *Store) Threads(ctx context.Context, account string, ids []string) (map[string]consumers.ThreadState, error) {
	have := make(map[string]consumers.ThreadState, len(ids))
	err := s.rows(ctx, threadStates, []any{account, mailstore.IDList(ids)}, func(r *sql.Rows) error {
		var id string
		var known, open bool
		var complete sql.NullBool
		if err := r.Scan(&id, &known, &complete, &open); err != nil {
			return err
		}
		if known || open {
			have[id] = consumers.ThreadState{Complete: complete.Bool, Open: open}
		}
		return nil
	})
	if err == nil && len(have) == 0 {
		_, err = s.Account(ctx, account)
	}
	return have, err
}

// DueFetches implements consumers.Store.
func (s *Store) DueFetches(ctx context.Context, account string, now time.Time, limit int) ([]consumers.Fetch, error) {
	var list []consumers.Fetch
	err := s.rows(ctx, `SELECT message_id, thread_id, history_id, attempts, due, cause FROM fetches
		WHERE account_id = ? AND due <= ? ORDER BY due, message_id LIMIT ?`, []any{account, mailstore.Millis(now), limit},
		func(r *sql.Rows) error {
			var f consumers.Fetch
			var due int64
			err := r.Scan(&f.MessageID, &f.ThreadID, hist(&f.HistoryID), &f.Attempts, &due, &f.Cause)
			f.Due = mailstore.Time(due)
			list = append(list, f)
			return err
		})
	if err == nil && len(list) == 0 {
		_, err = s.Account(ctx, account)
	}
	return list, err
}

// HistoryDone implements consumers.Store.
func (s *Store) HistoryDone(ctx context.Context, account string, now, next time.Time) error {
	return s.write(ctx, func(t *tx) error {
		return t.account(`UPDATE accounts SET history_at = ?1, resync_at = 0,
			due = min(?2, COALESCE((SELECT min(f.due) FROM fetches f WHERE f.account_id = ?3), ?2)) WHERE id = ?3`,
			mailstore.Millis(now), mailstore.Millis(next), account)
	})
}

// ApplyHistory implements consumers.Store. What was fetched is stored first, then the changes are applied to it: those
// that it already has are older than its rows and fall away.
func (s *Store) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	a := applying{account: account, step: step, now: now, threads: map[string]*threadRow{}, added: map[string]bool{}}
	messages := packMessages(step.Messages)
	threads := make([][]packed, len(step.Threads))
	for i, th := range step.Threads {
		threads[i] = packMessages(th.Messages)
	}
	return s.write(ctx, func(t *tx) error {
		if err := t.mustAccount(account); err != nil {
			return err
		}
		a.tx = t
		for _, part := range []func() error{
			a.mustBeCurrent,
			func() error { return a.saveThreads(threads) },
			func() error { return a.saveMessages(messages) },
			a.loadRows, a.applyChanges, a.applyGone, a.writeRows, a.writeRetries, a.writeWants, a.writeThreads, a.moveCursor,
		} {
			if err := part(); err != nil {
				return err
			}
		}
		return nil
	})
}

// applying is one history step on its way into the database.
type applying struct {
	*tx
	account string
	step    consumers.HistoryStep
	now     time.Time
	added   map[string]bool        // messages that the step's records added
	threads map[string]*threadRow  // threads touched by more than a snapshot
	rows    map[string]*messageRow // messages named by changes, Gone, Retry or Fetched
}

// messageRow is what the step knows of a message, and what it did to it.
type messageRow struct {
	exists, deleted bool
	outside         bool // of the scope; then it is deleted too
	history         consumers.HistoryID
	labels          []string
	thread          string
	fetch           consumers.HistoryID // on the retry list, named by this record; 0: not on it
	named           consumers.HistoryID // newest record that named it in this step
	mark            consumers.HistoryID // newest record that needs the message stored
	relabelled      bool
	added           bool // a record added it
	entered         bool // came inside the scope: its row was taken off, it is to be fetched
	buried          bool // became deleted
	givenUp         bool // taken off the retry list, and not stored
}

// mustBeCurrent fails with ErrOvertaken for a step that was read before a resync moved the cursor.
func (a *applying) mustBeCurrent() error {
	if a.step.Start == 0 {
		return nil
	}
	var overtaken bool
	err := a.row(`SELECT EXISTS (SELECT 1 FROM runs WHERE account_id = ? AND kind = 'resync' AND baseline_history_id > ?)`,
		[]any{a.account, mailstore.HistoryText(a.step.Start)}, &overtaken)
	if err == nil && overtaken {
		err = consumers.ErrOvertaken
	}
	return err
}

func (a *applying) thread(id string) (*threadRow, error) {
	if r, ok := a.threads[id]; ok {
		return r, nil
	}
	r, _, err := a.tx.thread(a.account, id)
	a.threads[id] = &r
	return &r, err
}

// saveThreads stores whole threads; one that the active run still had to fetch is settled there too.
func (a *applying) saveThreads(rows [][]packed) error {
	if len(a.step.Threads) == 0 {
		return nil
	}
	run, err := a.run(runActive, a.account)
	if err != nil && !errors.Is(err, consumers.ErrNoRun) {
		return err
	}
	for i, th := range a.step.Threads {
		complete, err := a.saveSnapshot(a.account, th, rows[i], 0)
		if err != nil {
			return err
		}
		if complete && run.ID != "" {
			if err := a.settle(run.ID, th.ID, "stored"); err != nil {
				return err
			}
		}
	}
	return nil
}

// saveMessages stores single messages. A thread that begins with one of them, added by a record of this step, is
// complete: whatever else it will have comes later in the history.
func (a *applying) saveMessages(rows []packed) error {
	for _, c := range a.step.Changes {
		if c.Kind == consumers.MessageAdded {
			a.added[c.MessageID] = true
		}
	}
	slices.SortFunc(rows, func(x, y packed) int { return strings.Compare(x.ID, y.ID) })
	for i := range rows {
		m := &rows[i]
		r, known, err := a.tx.thread(a.account, m.ThreadID)
		if err != nil {
			return err
		}
		if _, touched := a.threads[m.ThreadID]; !touched {
			r.complete = r.complete || !known && m.ID == m.ThreadID && a.added[m.ID]
			a.threads[m.ThreadID] = &r
		}
		if err := a.saveMessage(a.account, m, true); err != nil {
			return err
		}
	}
	return nil
}

const stepRows = `SELECT j.value, m.id IS NOT NULL, COALESCE(m.deleted, 0), COALESCE(m.outside, 0), m.history_id, COALESCE(m.label_ids, '[]'),
		COALESCE(m.thread_id, f.thread_id, ''), f.history_id
	FROM json_each(?2) j
	LEFT JOIN messages m ON m.account_id = ?1 AND m.id = j.value
	LEFT JOIN fetches f ON f.account_id = ?1 AND f.message_id = j.value`

// loadRows reads the rows of all messages that the step names.
func (a *applying) loadRows() error {
	ids := slices.Concat(a.step.Gone, a.step.Fetched)
	for _, c := range a.step.Changes {
		ids = append(ids, c.MessageID)
	}
	for _, f := range a.step.Retry {
		ids = append(ids, f.MessageID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	a.rows = make(map[string]*messageRow, len(ids))
	if len(ids) == 0 {
		return nil
	}
	return a.tx.rows(stepRows, []any{a.account, mailstore.IDList(ids)}, func(r *sql.Rows) error {
		var id, labels string
		m := &messageRow{}
		err := r.Scan(&id, &m.exists, &m.deleted, &m.outside, hist(&m.history), &labels, &m.thread, hist(&m.fetch))
		if err == nil {
			m.labels, err = mailstore.ParseLabels(labels)
		}
		a.rows[id] = m
		return err
	})
}

// applyChanges applies the records, oldest first, to the rows in memory.
func (a *applying) applyChanges() error {
	for _, c := range a.step.Changes {
		m := a.rows[c.MessageID]
		if m.thread == "" {
			m.thread = c.ThreadID
		}
		gap, err := a.hasGap(m, c)
		if err != nil {
			return err
		}
		m.apply(c, gap)
		th, err := a.thread(m.thread)
		if err != nil {
			return err
		}
		th.seen(c.HistoryID)
	}
	return nil
}

// hasGap tells that changes between a row and the record are unknown: a resync has moved the cursor over them, and has not
// got to the thread yet.
func (a *applying) hasGap(m *messageRow, c consumers.Change) (gap bool, err error) {
	if !m.exists || c.HistoryID <= m.history {
		return false, nil
	}
	err = a.row(`SELECT EXISTS (SELECT 1 FROM runs r WHERE r.account_id = ?1 AND r.finished_at = 0 AND r.kind = 'resync'
		AND r.baseline_history_id > ?2 AND r.baseline_history_id < ?3 AND NOT EXISTS (SELECT 1 FROM run_threads rt
			WHERE rt.run_id = r.id AND rt.thread_id = ?4 AND rt.state IN ('stored', 'gone')))`,
		[]any{a.account, mailstore.HistoryText(m.history), mailstore.HistoryText(c.HistoryID), m.thread}, &gap)
	return gap, err
}

// apply changes the row unless it is newer than the record. A record as old as the row is applied: two changes of one
// record have the same id, and applying one twice changes nothing. With a gap between row and record the labels are not
// known: then the message is to be fetched.
func (m *messageRow) apply(c consumers.Change, gap bool) {
	m.named = max(m.named, c.HistoryID)
	m.added = m.added || c.Kind == consumers.MessageAdded
	if m.exists && c.HistoryID < m.history {
		return
	}
	live := m.exists && (!m.deleted || m.outside) && !gap
	switch {
	case c.Kind == consumers.MessageDeleted:
		*m = messageRow{exists: true, deleted: true, buried: true, history: c.HistoryID, thread: m.thread, named: m.named, fetch: m.fetch}
	case live && c.Kind == consumers.LabelsAdded:
		m.relabel(c.HistoryID, append(slices.Clone(m.labels), c.Labels...))
	case live && c.Kind == consumers.LabelsRemoved:
		m.relabel(c.HistoryID, slices.DeleteFunc(slices.Clone(m.labels), func(l string) bool { return slices.Contains(c.Labels, l) }))
	case !live && !(m.deleted && c.HistoryID == m.history):
		m.mark = max(m.mark, c.HistoryID)
	}
}

func (m *messageRow) relabel(h consumers.HistoryID, labels []string) {
	m.history, m.labels, m.relabelled = h, labels, true
}

// applyGone buries messages that history named and that are not there. A live row at least as new as the record that
// named it stays: it was there, and if it went since, history will say so.
func (a *applying) applyGone() error {
	for _, id := range a.step.Gone {
		m := a.rows[id]
		h := max(m.named, m.fetch)
		m.mark, m.fetch = 0, 0
		if !m.exists || m.history < h {
			m.exists, m.deleted, m.buried, m.history = true, true, true, h
		}
		if _, err := a.thread(m.thread); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes what changed, in the order of the ids: two transactions then lock rows in the same order.
func (a *applying) writeRows() error {
	for _, id := range sortedKeys(a.rows) {
		m := a.rows[id]
		var err error
		switch {
		case m.buried:
			err = a.deleteMessage(a.account, m.thread, id, m.history)
		case m.relabelled:
			err = a.writeLabels(id, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLabels writes a message's labels. With them it may leave the scope, and lose its content; or come inside, and be
// one that history has named and that is not stored.
func (a *applying) writeLabels(id string, m *messageRow) error {
	rule, err := a.rule(a.account)
	if err != nil {
		return err
	}
	switch inside := rule.Has(m.labels); {
	case !inside:
		return a.saveOutside(a.account, m.thread, id, m.history, m.labels)
	case m.outside:
		m.exists, m.entered, m.mark = false, true, m.history
		_, err = a.exec(`DELETE FROM messages WHERE account_id = ? AND id = ?`, a.account, id)
	default:
		_, err = a.exec(`UPDATE messages SET label_ids = ?, history_id = ? WHERE account_id = ? AND id = ?`,
			mailstore.LabelText(m.labels), mailstore.HistoryText(m.history), a.account, id)
	}
	return err
}

// writeRetries brings the retry list up to date. A message that is stored, or known to be deleted, needs no fetch.
func (a *applying) writeRetries() error {
	for _, id := range a.step.Fetched {
		m := a.rows[id]
		if !m.exists && !m.entered {
			m.givenUp, m.mark = true, max(m.mark, m.fetch)
		}
		m.fetch = 0
	}
	retry := slices.Clone(a.step.Retry)
	slices.SortFunc(retry, func(x, y consumers.Fetch) int { return strings.Compare(x.MessageID, y.MessageID) })
	for _, f := range retry {
		m := a.rows[f.MessageID]
		m.fetch = max(f.HistoryID, m.fetch)
		f.HistoryID = m.fetch
		if err := a.addFetch(a.account, f); err != nil {
			return err
		}
	}
	return a.dropFetches()
}

const threadOpen = `SELECT EXISTS (SELECT 1 FROM runs r JOIN run_threads rt ON rt.run_id = r.id
	WHERE r.account_id = ? AND r.finished_at = 0 AND rt.thread_id = ? AND rt.state = 'open')`

// writeWants notes the messages that are named and not stored, so that no older snapshot counts as whole. Where no run is to
// fetch the thread, such a message goes on the retry list: a snapshot may have settled the thread after the consumer had
// seen it open.
func (a *applying) writeWants() error {
	rule, err := a.rule(a.account)
	if err != nil {
		return err
	}
	for _, id := range sortedKeys(a.rows) {
		m := a.rows[id]
		if m.mark == 0 || m.fetch > 0 {
			continue
		}
		th, err := a.thread(m.thread)
		if err != nil {
			return err
		}
		if m.mark <= th.snapshot {
			continue // a newer snapshot came without it
		}
		wanted := m.givenUp
		if !wanted {
			if err := a.row(threadOpen, []any{a.account, m.thread}, &wanted); err != nil {
				return err
			}
		}
		switch labelsOnly := !m.exists && !m.added && !m.entered; {
		case wanted:
			err = a.addWant(a.account, m.thread, id, m.mark)
		case labelsOnly && rule.Query != "":
		default:
			err = a.addFetch(a.account, consumers.Fetch{MessageID: id, ThreadID: m.thread, HistoryID: m.mark, Due: a.now, Cause: "named by history, not fetched"})
		}
		if err != nil {
			return err
		}
	}
	if err := a.dropWants(a.account); err != nil {
		return err
	}
	return a.dropMessageLetters(a.account)
}

// dropFetches takes off the retry list what was fetched, and what turned out to be stored or deleted.
func (a *applying) dropFetches() error {
	if len(a.step.Fetched) > 0 {
		if _, err := a.exec(`DELETE FROM fetches WHERE account_id = ? AND message_id IN (SELECT value FROM json_each(?))`,
			a.account, mailstore.IDList(a.step.Fetched)); err != nil {
			return err
		}
	}
	_, err := a.exec(`DELETE FROM fetches WHERE account_id = ?1 AND EXISTS (SELECT 1 FROM messages m WHERE m.account_id = ?1
		AND m.id = fetches.message_id AND m.history_id >= fetches.history_id)`, a.account)
	return err
}

func (a *applying) writeThreads() error {
	for _, id := range sortedKeys(a.threads) {
		if id == "" {
			continue
		}
		if err := a.saveThreadRow(a.account, id, *a.threads[id]); err != nil {
			return err
		}
	}
	return nil
}

// moveCursor never gives an account its first cursor: that is a run's baseline, and the account may be being removed.
func (a *applying) moveCursor() error {
	_, err := a.exec(`UPDATE accounts SET cursor_history_id = ?1, resync_at = 0 WHERE id = ?2 AND cursor_history_id < ?1 AND cursor_history_id > ?3`,
		mailstore.HistoryText(a.step.Cursor), a.account, noHistory)
	return err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
