package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// scopeText is a scope as a column has it.
func scopeText(s consumers.Scope) (string, error) {
	if s.Equal(consumers.Scope{}) {
		return "", nil
	}
	text, err := json.Marshal(s)
	return string(text), err
}

func parseScope(text string) (s consumers.Scope, err error) {
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("stored scope: %w", err)
	}
	return s, nil
}

// Scope returns what is mirrored of an account, with the ids of its labels.
func (s *Store) Scope(ctx context.Context, account string) (consumers.Scope, error) {
	var text string
	if err := s.row(ctx, `SELECT scope_rule FROM accounts WHERE id = ?`, []any{account}, &text); err != nil {
		return consumers.Scope{}, notFound(err, consumers.ErrNoAccount)
	}
	return parseScope(text)
}

// rule is what is mirrored of an account, with the ids of its labels; it is read once in a transaction.
func (t *tx) rule(account string) (consumers.Scope, error) {
	if s, known := t.rules[account]; known {
		return s, nil
	}
	var text string
	err := t.row(`SELECT scope_rule FROM accounts WHERE id = ?`, []any{account}, &text)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // an account that is being removed
	}
	if err != nil {
		return consumers.Scope{}, err
	}
	s, err := parseScope(text)
	t.rules = map[string]consumers.Scope{account: s}
	return s, err
}

// SetScope implements consumers.Store. It is one transaction, which on a large mirror keeps other writers waiting.
func (s *Store) SetScope(ctx context.Context, account string, scope consumers.Scope, now time.Time) (bool, error) {
	changed := false
	err := s.write(ctx, func(t *tx) error {
		var old string
		if err := t.row(`SELECT scope FROM accounts WHERE id = ?`, []any{account}, &old); err != nil {
			return notFound(err, consumers.ErrNoAccount)
		}
		text, err := scopeText(scope)
		if err != nil || text == old {
			return err
		}
		changed = true
		if _, err := t.exec(`UPDATE accounts SET scope = ? WHERE id = ?`, text, account); err != nil {
			return err
		}
		return t.rescope(account, scope, now)
	})
	return changed && err == nil, err
}

// followLabels applies the account's scope anew if its names mean other labels now.
func (t *tx) followLabels(account string, now time.Time) error {
	var text string
	if err := t.row(`SELECT scope FROM accounts WHERE id = ?`, []any{account}, &text); err != nil || text == "" {
		return err
	}
	scope, err := parseScope(text)
	if err != nil {
		return err
	}
	return t.rescope(account, scope, now)
}

// rescope makes a scope the account's rule. If that is another one it is applied to what is stored, and the mailbox listed
// again unless that is to come.
func (t *tx) rescope(account string, scope consumers.Scope, now time.Time) error {
	labels, err := t.labels(account)
	if err != nil {
		return err
	}
	rule := scope.Resolve(labels)
	old, err := t.rule(account)
	if err != nil || rule.Equal(old) {
		return err
	}
	text, err := scopeText(rule)
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE accounts SET scope_rule = ? WHERE id = ?`, text, account); err != nil {
		return err
	}
	t.rules = nil
	if err := t.sortMessages(account, rule); err != nil {
		return err
	}
	return t.listAgain(account, now)
}

func (t *tx) labels(account string) ([]consumers.Label, error) {
	var list []consumers.Label
	err := t.rows(`SELECT id, name FROM labels WHERE account_id = ? ORDER BY id`, []any{account}, func(r *sql.Rows) error {
		var l consumers.Label
		err := r.Scan(&l.ID, &l.Name)
		list = append(list, l)
		return err
	})
	return list, err
}

// erase takes the content from a message's row, which stays.
const erase = `internal_date = NULL, size_estimate = 0, rfc_message_id = '', from_header = '', to_header = '', cc_header = '',
	subject = '', date_header = NULL, snippet = '', cleaned = 0, body_missing = 0, body_text = '', body_html = '', raw = NULL`

// sortMessages moves the stored messages out of the scope, or off the store so that they are fetched.
func (t *tx) sortMessages(account string, rule consumers.Scope) error {
	var leaves, enters []string
	err := t.rows(`SELECT id, label_ids, outside FROM messages WHERE account_id = ? AND (deleted = 0 OR outside = 1)`,
		[]any{account}, func(r *sql.Rows) error {
			var id, text string
			var outside bool
			if err := r.Scan(&id, &text, &outside); err != nil {
				return err
			}
			labels, err := mailstore.ParseLabels(text)
			switch inside := rule.Has(labels); {
			case outside && inside:
				enters = append(enters, id)
			case !outside && !inside:
				leaves = append(leaves, id)
			}
			return err
		})
	if err != nil {
		return err
	}
	for _, q := range []struct {
		query string
		ids   []string
	}{
		{`UPDATE threads SET complete = 0 WHERE account_id = ?1 AND id IN
			(SELECT thread_id FROM messages WHERE account_id = ?1 AND id IN (SELECT value FROM json_each(?2)))`, enters},
		{`DELETE FROM messages WHERE account_id = ?1 AND id IN (SELECT value FROM json_each(?2))`, enters},
		{`DELETE FROM attachments WHERE account_id = ?1 AND message_id IN (SELECT value FROM json_each(?2))`, leaves},
		{`UPDATE messages SET deleted = 1, outside = 1, ` + erase + ` WHERE account_id = ?1 AND id IN (SELECT value FROM json_each(?2))`, leaves},
		{`UPDATE threads SET message_count = (SELECT count(*) FROM messages m WHERE m.account_id = ?1 AND m.thread_id = threads.id
			AND m.deleted = 0) WHERE account_id = ?1 AND id IN
			(SELECT thread_id FROM messages WHERE account_id = ?1 AND id IN (SELECT value FROM json_each(?2)))`, leaves},
	} {
		if len(q.ids) == 0 {
			continue
		}
		if _, err := t.exec(q.query, account, mailstore.IDList(q.ids)); err != nil {
			return err
		}
	}
	return nil
}

// listAgain puts a resync in the place of the account's active run. There is none to put before the first listing, and a
// run that has no baseline lists everything yet.
func (t *tx) listAgain(account string, now time.Time) error {
	var listed bool
	err := t.row(`SELECT cursor_history_id > ? AND NOT EXISTS (SELECT 1 FROM runs WHERE account_id = accounts.id
		AND finished_at = 0 AND baseline_history_id = ?) FROM accounts WHERE id = ?`, []any{noHistory, noHistory, account}, &listed)
	if err != nil || !listed {
		return err
	}
	if _, err := t.exec(`DELETE FROM batches WHERE account_id = ?`, account); err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE runs SET finished_at = max(started_at, 1) WHERE account_id = ? AND finished_at = 0`, account); err != nil {
		return err
	}
	_, err = t.startRun(account, consumers.RunResync, now)
	return err
}

// absentSlice bounds the threads that one transaction removes.
const absentSlice = 200

// removeAbsent removes, in slices, the threads that a run's complete listing by query did not name and that have not changed
// since its baseline.
func (s *Store) removeAbsent(ctx context.Context, run string) error {
	for more := true; more; {
		err := s.write(ctx, func(t *tx) error {
			more = false
			r, open, err := t.openRun(run)
			if err != nil || !open || r.Kind != consumers.RunResync || !r.Listed || r.AbsentQueued {
				return err
			}
			rule, err := t.rule(r.Account)
			if err != nil || rule.Query == "" {
				return err
			}
			var absent []string
			err = t.rows(`SELECT id FROM threads WHERE account_id = ? AND history_id <= ?
				AND NOT EXISTS (SELECT 1 FROM run_threads rt WHERE rt.run_id = ? AND rt.thread_id = threads.id) LIMIT ?`,
				[]any{r.Account, mailstore.HistoryText(r.Baseline), run, absentSlice}, func(row *sql.Rows) error {
					var id string
					err := row.Scan(&id)
					absent = append(absent, id)
					return err
				})
			if err != nil || len(absent) == 0 {
				return err
			}
			more = true
			return t.removeThreads(r.Account, absent)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) removeThreads(account string, ids []string) error {
	for _, q := range []string{
		`DELETE FROM attachments WHERE account_id = ?1 AND message_id IN (SELECT m.id FROM json_each(?2) j
			JOIN messages m ON m.account_id = ?1 AND m.thread_id = j.value)`,
		`DELETE FROM messages WHERE account_id = ?1 AND thread_id IN (SELECT value FROM json_each(?2))`,
		`DELETE FROM wants WHERE account_id = ?1 AND thread_id IN (SELECT value FROM json_each(?2))`,
		`DELETE FROM fetches WHERE account_id = ?1 AND thread_id IN (SELECT value FROM json_each(?2))`,
		`DELETE FROM dead_letters WHERE account_id = ?1 AND thread_id IN (SELECT value FROM json_each(?2))`,
		`DELETE FROM threads WHERE account_id = ?1 AND id IN (SELECT value FROM json_each(?2))`,
	} {
		if _, err := t.exec(q, account, mailstore.IDList(ids)); err != nil {
			return err
		}
	}
	return nil
}
