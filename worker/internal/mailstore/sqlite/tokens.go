package sqlite

import (
	"context"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// Token returns the account's tokens as they are stored.
func (s *Store) Token(ctx context.Context, account string) (consumers.Sealed, error) {
	var t consumers.Sealed
	var expires int64
	err := s.row(ctx, `SELECT refresh, access, expires, version FROM tokens WHERE account_id = ?`, []any{account},
		&t.Refresh, &t.Access, &expires, &t.Version)
	t.Expires = mailstore.Time(expires)
	return t, notFound(err, consumers.ErrNoAccount)
}

// SaveToken stores the tokens if the stored version is still t.Version, as version t.Version + 1. It reports false,
// and changes nothing, if another process has stored others meanwhile.
func (s *Store) SaveToken(ctx context.Context, account string, token consumers.Sealed) (bool, error) {
	saved := false
	err := s.write(ctx, func(t *tx) error {
		n, err := t.exec(`UPDATE tokens SET refresh = ?, access = ?, expires = ?, version = version + 1
			WHERE account_id = ? AND version = ?`,
			token.Refresh, token.Access, mailstore.Millis(token.Expires), account, token.Version)
		if err != nil || n > 0 {
			saved = err == nil
			return err
		}
		return t.mustAccount(account)
	})
	return saved && err == nil, err
}
