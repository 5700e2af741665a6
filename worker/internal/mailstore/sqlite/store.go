// Package sqlite keeps the mirror in one SQLite file: consumers.Store, the tokens' store, and what the commands read.
//
// One connection writes, some read beside it, and other processes (the commands) may do both at the same time: the
// file is in WAL mode, every writing transaction takes the write lock at its start, and waits for it for a while.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

const (
	readers = 4 // connections for reading; reads never wait for the writer
	// lockWaitMillis is how long a statement waits for another process's write lock. No transaction of this package
	// takes a tenth of it.
	lockWaitMillis = "10000"
	// Pages in memory, outside Go's heap: 16 MB for the writer and 4 MB for each reader.
	writeCache = "cache_size(-16000)"
	readCache  = "cache_size(-4000)"
)

// Store is a mirror in one SQLite file. It is safe for concurrent use, also by several processes. Its methods return
// consumers.ErrNoAccount and consumers.ErrNoRun for an account or run that does not exist.
type Store struct {
	read   *sql.DB
	reads  sync.Map // query → *sql.Stmt
	writer *writer
}

var _ consumers.Store = (*Store)(nil)

// Open opens the file, makes it if it is missing, and brings its schema up to date.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string) (*Store, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := makeFile(abs); err != nil {
		return nil, err
	}
	write, err := sql.Open("sqlite", dsn(abs, writeCache, url.Values{"_txlock": {"immediate"}}))
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	if err := migrateAlone(ctx, write, abs); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	w, err := newWriter(ctx, write)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read, err := sql.Open("sqlite", dsn(abs, readCache, url.Values{"_query_only": {"1"}}))
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	s := &Store{read: read, writer: w}
	s.forgetThreads(ctx)
	return s, nil
}

// lockRetry is how often another process that migrates is looked at; it takes some milliseconds.
const lockRetry = 20 * time.Millisecond

// dsn names the file and what each connection is set to. synchronous=NORMAL in WAL mode: a power cut can undo the last
// transactions, never tear one; what is undone is open work again, so it is fetched again. The log is copied into the file
// each 16 MB, four times SQLite's default: pages that every transaction writes are copied once for all of them.
func dsn(path, cache string, extra url.Values) string {
	q := url.Values{
		"_busy_timeout": {lockWaitMillis},
		"_foreign_keys": {"1"},
		"_synchronous":  {"NORMAL"},
		"_pragma":       {cache, "temp_store(memory)", "wal_autocheckpoint(4000)"},
	}
	for k, v := range extra {
		q[k] = v
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// makeFile makes the file where it is missing, for its owner only: it holds somebody's mail. SQLite gives its other files the
// same rights.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// migrateAlone migrates while no other process does: a worker and a command may both open a new file.
func migrateAlone(ctx context.Context, db *sql.DB, path string) error {
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return errors.Join(migrate(ctx, db), lock.Close())
}

// migrate sets WAL, which the file keeps, and the schema. Both only if needed: a second process must be able to open
// a file that is being written.
func migrate(ctx context.Context, db *sql.DB) error {
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
			return err
		}
	}
	return mailstore.MigrateSQLite(ctx, db)
}

// Close ends the store. Calls under way are waited for.
func (s *Store) Close() error {
	s.reads.Range(func(_, stmt any) bool {
		stmt.(*sql.Stmt).Close()
		return true
	})
	return errors.Join(s.read.Close(), s.writer.close())
}

// stmt prepares a reading statement once.
func (s *Store) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.reads.Load(query); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := s.read.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if old, loaded := s.reads.LoadOrStore(query, st); loaded {
		st.Close()
		return old.(*sql.Stmt), nil
	}
	return st, nil
}

// row reads one row; sql.ErrNoRows if there is none.
func (s *Store) row(ctx context.Context, query string, args []any, dest ...any) error {
	st, err := s.stmt(ctx, query)
	if err != nil {
		return err
	}
	return st.QueryRowContext(ctx, args...).Scan(dest...)
}

// rows calls scan for each row.
func (s *Store) rows(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	st, err := s.stmt(ctx, query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

func eachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// notFound turns "no row" into the error that names what is missing.
func notFound(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}

// hist reads a stored history id into h.
func hist(h *consumers.HistoryID) mailstore.HistoryScanner { return mailstore.HistoryScanner{H: h} }
