package mailstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// MigrateSQLite brings a SQLite database to the newest schema. A database that is newer than this program is refused:
// an older program would write rows that the newer one does not expect. The caller makes sure that only one migrates.
func MigrateSQLite(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; have > newest {
		return fmt.Errorf("schema: the database has version %d, this program knows up to %d: use a newer gmailsync", have, newest)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	return nil
}
