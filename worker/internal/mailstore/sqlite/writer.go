package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/gmailsync/gmailsync/consumers"
)

// writer owns the one connection that writes, and its prepared statements. A transaction is a few statements of some
// microseconds each, so it is never interrupted: ctx only bounds the wait for its turn. (A statement with a context
// that can end costs the driver a goroutine.)
type writer struct {
	turn  chan struct{} // holds the one token
	done  sync.Once
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newWriter(ctx context.Context, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{turn: make(chan struct{}, 1), db: db, conn: conn, stmts: map[string]*sql.Stmt{}}
	w.turn <- struct{}{}
	return w, nil
}

func (w *writer) close() (err error) {
	w.done.Do(func() {
		<-w.turn
		close(w.turn)
		for _, st := range w.stmts {
			st.Close()
		}
		err = errors.Join(w.conn.Close(), w.db.Close())
	})
	return err
}

// tx is one writing transaction.
type tx struct {
	w     *writer
	rules map[string]consumers.Scope // the scopes of accounts, as far as they were read
}

var errClosed = errors.New("store: closed")

// write runs fn in one transaction: committed if fn returns nil, else rolled back.
func (s *Store) write(ctx context.Context, fn func(*tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case _, open := <-s.writer.turn:
		if !open {
			return errClosed
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.writer.turn <- struct{}{} }()
	t := &tx{w: s.writer}
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("store: begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed {
			_, rollback := t.exec("ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	if err := fn(t); err != nil {
		return err
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return fmt.Errorf("store: commit: %w", err)
	}
	committed = true
	return nil
}

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if st, ok := t.w.stmts[query]; ok {
		return st, nil
	}
	st, err := t.w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	t.w.stmts[query] = st
	return st, nil
}

// exec runs a statement and tells how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert runs an INSERT and returns the new row's id.
func (t *tx) insert(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// row reads one row; sql.ErrNoRows if there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	st, err := t.stmt(query)
	if err != nil {
		return err
	}
	return st.QueryRowContext(context.Background(), args...).Scan(dest...)
}

// rows calls scan for each row. scan must not use the transaction.
func (t *tx) rows(query string, args []any, scan func(*sql.Rows) error) error {
	st, err := t.stmt(query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}
