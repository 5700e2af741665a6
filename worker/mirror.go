package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore/sqlite"
	"github.com/gmailsync/gmailsync/worker/internal/tokens"
)

// Mirror is the stored mailboxes and the guarded way to Gmail, without the consumers: what commands need, and what a
// Worker is built on. It may be open in several processes on one store. Safe for concurrent use; Close ends it.
type Mirror struct {
	cfg      configs.Config
	log      *zap.Logger
	isWorker bool
	events   *guardEvents
	lock     *flock.Flock // nil for a command that needs none
	store    *sqlite.Store
	tokens   *tokens.Source
	rdb      redis.UniversalClient // nil when the guard is off
	embedded *embeddedRedis        // nil unless this process runs it
	guard    *gmailquota.Guard     // nil when the guard is off
	gmail    *gmailapi.Client

	closeOnce sync.Once
	closeErr  error
}

// OpenMirror opens the store, the guard and Gmail as configured, for use beside a worker or without one. Redis and Gmail
// are not asked before they are needed. A store that does not exist is an error: the configuration names another one.
func OpenMirror(ctx context.Context, cfg configs.Config, log *zap.Logger) (*Mirror, error) {
	if _, err := os.Stat(cfg.Store.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, &configs.Error{
			Key: "store.path", Value: cfg.Store.Path,
			Allowed: "a file that exists: name the worker's configuration with -c, or make the store with `gmailsync account add`",
		}
	}
	return openMirror(ctx, cfg, log, false)
}

// CreateMirror is OpenMirror that makes a missing store.
func CreateMirror(ctx context.Context, cfg configs.Config, log *zap.Logger) (*Mirror, error) {
	return openMirror(ctx, cfg, log, false)
}

func openMirror(ctx context.Context, cfg configs.Config, log *zap.Logger, isWorker bool) (*Mirror, error) {
	m := &Mirror{cfg: cfg, log: log, isWorker: isWorker, events: newGuardEvents(log)}
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Mirror) open(ctx context.Context) error {
	if err := checkGuard(m.cfg); err != nil {
		return err
	}
	if err := checkFolder(m.cfg.Store.Path); err != nil {
		return err
	}
	claim := m.claimIfFree
	if m.isWorker {
		claim = func() error { return m.claim(ctx) }
	}
	if err := claim(); err != nil {
		return err
	}
	var err error
	if m.store, err = sqlite.Open(ctx, m.cfg.Store.Path); err != nil {
		return fmt.Errorf("store.path: %w", err)
	}
	cipher, err := m.openCipher(ctx)
	if err != nil {
		return fmt.Errorf("store.keyFile: %w", err)
	}
	m.tokens = tokens.New(tokens.Config{
		TokenURL: m.cfg.Gmail.TokenURL, ClientID: m.cfg.Gmail.ClientID, ClientSecret: m.cfg.Gmail.ClientSecret,
		Store: m.store, Cipher: cipher, Log: m.log,
	})
	if m.cfg.Guard.Enabled {
		if m.rdb, m.embedded, err = openRedis(ctx, m.cfg, m.holds()); err != nil {
			return err
		}
		if m.guard, err = gmailquota.New(m.rdb, guardConfig(m.cfg), gmailquota.WithObserver(m.events.observe)); err != nil {
			return fmt.Errorf("guard: %w", err)
		}
	}
	m.gmail, err = gmailapi.New(m.gmailConfig(m.tokens))
	return err
}

// openCipher makes the key where it is missing, unless tokens are stored that only the missing one opens.
func (m *Mirror) openCipher(ctx context.Context) (*tokens.Cipher, error) {
	keyFile := m.cfg.Store.KeyFile
	if keyFile == "" {
		keyFile = m.cfg.Store.Path + ".key"
	}
	accounts, err := m.store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	return tokens.OpenCipher(keyFile, len(accounts) == 0)
}

// checkFolder says in the configuration's terms that the store's folder is missing, before the key or the store do in
// theirs.
func checkFolder(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return &configs.Error{Key: "store.path", Value: path, Allowed: "a file in a folder that exists"}
	}
	return nil
}

// Close frees what OpenMirror opened. A second call does nothing.
func (m *Mirror) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *Mirror) close() error {
	var errs []error
	if m.gmail != nil {
		m.gmail.CloseIdle()
	}
	if m.guard != nil {
		ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Redis.Timeout)
		if err := m.guard.Close(ctx); err != nil {
			m.log.Debug("Redis is not told which calls ended: their leases lapse by themselves", zap.Error(err))
		}
		cancel()
	}
	if m.rdb != nil {
		errs = append(errs, m.rdb.Close())
	}
	if m.embedded != nil {
		errs = append(errs, m.embedded.close())
	}
	if m.store != nil {
		errs = append(errs, m.store.Close())
	}
	if m.lock != nil {
		errs = append(errs, m.lock.Close())
	}
	return errors.Join(errs...)
}

// AccountStatus is one account as it stands.
type AccountStatus struct {
	ID           string          `json:"id"`
	Address      string          `json:"address,omitempty"`
	State        consumers.State `json:"state"`
	Reason       string          `json:"reason,omitempty"`
	HistoryID    string          `json:"historyId"` // the cursor: all changes up to it are stored
	HistoryAt    time.Time       `json:"historyAt,omitzero"`
	WatchExpires time.Time       `json:"watchExpires,omitzero"`
	Threads      int64           `json:"threads"`
	Messages     int64           `json:"messages"`
	DeadLetters  int             `json:"deadLetters"`
	Run          RunStatus       `json:"run"` // the active sync run, else the last
	Quota        QuotaStatus     `json:"quota"`
}

// Live tells that the mailbox is mirrored as a whole and followed.
func (s AccountStatus) Live() bool { return s.State == consumers.Live }

// RunStatus is the progress of a sync run, in threads.
type RunStatus struct {
	Listed int `json:"listed"`
	Stored int `json:"stored"`
	Gone   int `json:"gone"`
	Failed int `json:"failed"`
	Open   int `json:"open"`
}

func (r RunStatus) String() string {
	if r.Listed == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", r.Listed-r.Open, r.Listed)
}

// Accounts returns all accounts, ordered by id.
func (m *Mirror) Accounts(ctx context.Context) ([]AccountStatus, error) {
	accounts, err := m.store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]AccountStatus, 0, len(accounts))
	quota := m.quota
	for _, a := range accounts {
		s, err := m.status(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", a.ID, err)
		}
		if s.Quota = quota(ctx, a.ID); !s.Quota.Known {
			quota = unknownQuota // each question to a Redis that is away takes its timeout
		}
		if s.State.Active() {
			s.Reason = waiting(s.Reason, s.Quota.PausedUntil)
		}
		all = append(all, s)
	}
	return all, nil
}

// Resolve returns the id of the account with this id or address.
func (m *Mirror) Resolve(ctx context.Context, idOrAddress string) (string, error) {
	a, err := m.store.Account(ctx, idOrAddress)
	if errors.Is(err, consumers.ErrNoAccount) {
		a, err = m.store.AccountByAddress(ctx, strings.ToLower(idOrAddress))
	}
	if errors.Is(err, consumers.ErrNoAccount) {
		return "", fmt.Errorf("--account: the store %s has no account with that id or address; `gmailsync account list` shows them", m.cfg.Store.Path)
	}
	return a.ID, err
}
