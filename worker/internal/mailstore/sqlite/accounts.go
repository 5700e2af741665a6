package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

const accountColumns = `SELECT id, address, state, reason, cursor_history_id, watch_expires, history_at, resync_at, scope,
	(SELECT count(*) FROM dead_letters d WHERE d.account_id = accounts.id),
	(SELECT count(*) FROM dead_letters d WHERE d.account_id = accounts.id AND d.thread_id <> '') FROM accounts`

func scanAccount(scan func(...any) error) (consumers.Account, error) {
	var a consumers.Account
	var expires, historyAt, resyncAt int64
	var missing int
	var scope string
	err := scan(&a.ID, &a.Address, &a.State, &a.Reason, hist(&a.Cursor), &expires, &historyAt, &resyncAt, &scope, &a.Failed, &missing)
	if err == nil {
		a.Scope, err = parseScope(scope)
	}
	a.ResyncAt = mailstore.Time(resyncAt)
	if a.State.Active() && missing > 0 {
		a.Reason = fmt.Sprintf("incomplete: %d", missing)
	}
	a.WatchExpires, a.HistoryAt = mailstore.Time(expires), mailstore.Time(historyAt)
	return a, err
}

func (s *Store) oneAccount(ctx context.Context, where string, args ...any) (consumers.Account, error) {
	st, err := s.stmt(ctx, accountColumns+where)
	if err != nil {
		return consumers.Account{}, err
	}
	a, err := scanAccount(st.QueryRowContext(ctx, args...).Scan)
	if err != nil {
		return consumers.Account{}, notFound(err, consumers.ErrNoAccount)
	}
	return a, nil
}

func (s *Store) manyAccounts(ctx context.Context, where string, args ...any) ([]consumers.Account, error) {
	var list []consumers.Account
	err := s.rows(ctx, accountColumns+where, args, func(r *sql.Rows) error {
		a, err := scanAccount(r.Scan)
		list = append(list, a)
		return err
	})
	return list, err
}

// Account implements consumers.Store.
func (s *Store) Account(ctx context.Context, id string) (consumers.Account, error) {
	return s.oneAccount(ctx, " WHERE id = ?", id)
}

// AccountByAddress finds an account by its address, in any letter case.
func (s *Store) AccountByAddress(ctx context.Context, address string) (consumers.Account, error) {
	if address == "" {
		return consumers.Account{}, consumers.ErrNoAccount
	}
	return s.oneAccount(ctx, " WHERE address = ? AND address <> ''", strings.ToLower(address))
}

// Accounts returns all accounts, ordered by id.
func (s *Store) Accounts(ctx context.Context) ([]consumers.Account, error) {
	return s.manyAccounts(ctx, " ORDER BY id")
}

const activeStates = "('importing', 'live', 'resyncing')"

// WatchesDue returns active accounts whose watch expires before the given time, earliest expiry first, those without
// a watch before all others.
func (s *Store) WatchesDue(ctx context.Context, before time.Time, limit int) ([]consumers.Account, error) {
	return s.manyAccounts(ctx,
		" WHERE watch_expires < ? AND state IN "+activeStates+" ORDER BY watch_expires, id LIMIT ?",
		mailstore.Millis(before), limit)
}

// AddAccount adds an account with its tokens; its import is due at once. An account that exists (same id) keeps its
// mirror, cursor and runs: it gets the address and the tokens, and if it had stopped it goes on where it was. An
// address that another account held goes over to this one. What a removal that was cut off left is removed first. State,
// Reason and Cursor of a are not read.
func (s *Store) AddAccount(ctx context.Context, a consumers.Account, token consumers.Sealed) error {
	address := strings.ToLower(a.Address)
	if err := s.finishRemoval(ctx, a.ID); err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		if _, err := t.exec(`UPDATE accounts SET address = '' WHERE address = ? AND id <> ?`, address, a.ID); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO accounts (id, address, state) VALUES (?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET address = excluded.address`, a.ID, address, consumers.Importing); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO tokens (account_id, refresh, access, expires, version) VALUES (?, ?, ?, ?, 1)
			ON CONFLICT (account_id) DO UPDATE SET refresh = excluded.refresh, access = excluded.access,
			expires = excluded.expires, version = tokens.version + 1`,
			a.ID, token.Refresh, token.Access, mailstore.Millis(token.Expires)); err != nil {
			return err
		}
		return resume(t, a.ID)
	})
}

// resume sets a stopped account to the state that its run and cursor say; an active one stays as it is.
func resume(t *tx, account string) error {
	n, err := t.exec(`UPDATE accounts SET reason = '', state = CASE
			COALESCE((SELECT kind FROM runs WHERE account_id = accounts.id AND finished_at = 0), '')
			WHEN 'import' THEN 'importing' WHEN 'resync' THEN 'resyncing'
			ELSE CASE WHEN cursor_history_id = ? THEN 'importing' ELSE 'live' END END
		WHERE id = ? AND state NOT IN `+activeStates, noHistory, account)
	if err != nil || n == 0 {
		return err
	}
	return release(t, account)
}

var noHistory = mailstore.HistoryText(0)

// SetState implements consumers.Store. Work of an account that becomes active, or that is to be listed again, is due
// at once.
func (s *Store) SetState(ctx context.Context, account string, state consumers.State, reason string) (bool, error) {
	changed := false
	err := s.write(ctx, func(t *tx) error {
		var old consumers.State
		if err := t.row(`SELECT state FROM accounts WHERE id = ?`, []any{account}, &old); err != nil {
			return notFound(err, consumers.ErrNoAccount)
		}
		if old == state {
			return nil
		}
		changed = true
		if _, err := t.exec(`UPDATE accounts SET state = ?, reason = ? WHERE id = ?`, state, reason, account); err != nil {
			return err
		}
		if state.Active() {
			return release(t, account)
		}
		_, err := t.exec(`UPDATE accounts SET resync_at = 0, watch_expires = 0 WHERE id = ?`, account)
		return err
	})
	return changed && err == nil, err
}

// SetWatch implements consumers.Store.
func (s *Store) SetWatch(ctx context.Context, account string, w consumers.Watch) error {
	return s.write(ctx, func(t *tx) error {
		return t.account(`UPDATE accounts SET watch_expires = ? WHERE id = ?`, mailstore.Millis(w.Expires), account)
	})
}

// account runs an UPDATE of one account's row.
func (t *tx) account(query string, args ...any) error {
	n, err := t.exec(query, args...)
	if err == nil && n == 0 {
		return consumers.ErrNoAccount
	}
	return err
}

// mustAccount fails with ErrNoAccount if there is none.
func (t *tx) mustAccount(id string) error {
	var one int
	return notFound(t.row(`SELECT 1 FROM accounts WHERE id = ?`, []any{id}, &one), consumers.ErrNoAccount)
}

// SaveLabels implements consumers.Store: the account has these labels and no others.
func (s *Store) SaveLabels(ctx context.Context, account string, labels []consumers.Label, now time.Time) error {
	labels = slices.Clone(labels)
	slices.SortFunc(labels, func(a, b consumers.Label) int { return strings.Compare(a.ID, b.ID) })
	return s.write(ctx, func(t *tx) error {
		if err := t.mustAccount(account); err != nil {
			return err
		}
		ids := make([]string, len(labels))
		for i, l := range labels {
			ids[i] = l.ID
			if _, err := t.exec(`INSERT INTO labels (account_id, id, name, type) VALUES (?, ?, ?, ?)
				ON CONFLICT (account_id, id) DO UPDATE SET name = excluded.name, type = excluded.type`,
				account, l.ID, mailstore.CleanText(l.Name), l.Type); err != nil {
				return err
			}
		}
		if _, err := t.exec(`DELETE FROM labels WHERE account_id = ? AND id NOT IN (SELECT value FROM json_each(?))`,
			account, mailstore.IDList(ids)); err != nil {
			return err
		}
		return t.followLabels(account, now)
	})
}

// Labels returns the account's labels, ordered by id.
func (s *Store) Labels(ctx context.Context, account string) ([]consumers.Label, error) {
	var list []consumers.Label
	err := s.rows(ctx, `SELECT id, name, type FROM labels WHERE account_id = ? ORDER BY id`, []any{account},
		func(r *sql.Rows) error {
			var l consumers.Label
			err := r.Scan(&l.ID, &l.Name, &l.Type)
			list = append(list, l)
			return err
		})
	return list, err
}
