package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gofrs/flock"

	"github.com/gmailsync/gmailsync/configs"
)

// claimTimeout bounds a worker's wait for its store's lock, which a command may hold for as long as it runs.
const claimTimeout = 3 * time.Second

// storeLock is held by the worker of a store, so that there is one, or else by a command that needs the embedded Redis:
// who holds it has that Redis, and whoever comes meanwhile uses it as well. Two of them would charge one mailbox twice.
func storeLock(cfg configs.Config) *flock.Flock { return flock.New(cfg.Store.Path + ".worker.lock") }

// claim takes the lock for a worker.
func (m *Mirror) claim(ctx context.Context) error {
	m.lock = storeLock(m.cfg)
	wait, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	ok, err := m.lock.TryLockContext(wait, claimTimeout/30)
	if !ok && ctx.Err() == nil {
		return fmt.Errorf("store.path: another worker runs on %s, or a command that calls Gmail: wait for it, or stop it", m.cfg.Store.Path)
	}
	if err != nil {
		return fmt.Errorf("store.path: lock: %w", err)
	}
	return nil
}

// claimIfFree takes the lock for a command where nobody has it.
func (m *Mirror) claimIfFree() error {
	if !m.cfg.Guard.Enabled || m.cfg.Redis.URL != configs.Embedded {
		return nil
	}
	m.lock = storeLock(m.cfg)
	if _, err := m.lock.TryLock(); err != nil {
		return fmt.Errorf("store.path: lock: %w", err)
	}
	return nil
}

// holds tells whether this process holds the store's lock.
func (m *Mirror) holds() bool { return m.lock != nil && m.lock.Locked() }

// WorkerRuns tells whether a worker runs on this store now.
func (m *Mirror) WorkerRuns() bool {
	if m.holds() {
		return m.isWorker
	}
	lock := storeLock(m.cfg)
	free, err := lock.TryLock()
	return errors.Join(err, lock.Close()) == nil && !free
}
