package consumertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// Store is a consumers.Store in memory. It passes StoreSuite, so what a consumer does to it, it does to a database.
// The zero value is not usable, NewStore's is. Safe for concurrent use.
type Store struct {
	// Fail, if set, is asked before each call with the method's name; an error it returns is the call's error and
	// nothing is stored. Set it before the store is used.
	Fail func(method string) error

	mu       sync.Mutex
	accounts map[string]*account
	runs     map[string]*run
	lastID   int64
}

var _ consumers.Store = (*Store)(nil)

type account struct {
	consumers.Account
	due      time.Time
	labels   []consumers.Label
	rule     consumers.Scope // the scope with the ids of its labels
	messages map[string]*message
	threads  map[string]*thread
	fetches  map[string]consumers.Fetch
	dead     []consumers.DeadLetter
	active   *run
	resynced consumers.HistoryID // baseline of the last resync
}

type message struct {
	consumers.Message
	deleted bool
	outside bool // of the scope: deleted as well, but its labels are known
}

type thread struct {
	history, snapshot consumers.HistoryID
	complete          bool
	wants             map[string]consumers.HistoryID // messages named by history and not stored, by the record's id
}

type run struct {
	consumers.Run
	finished bool
	due      time.Time
	threads  map[string]*runThread
	batches  map[int64]*batch
}

type runThread struct {
	batch    int64
	state    string
	attempts int
}

type batch struct {
	working bool
	due     time.Time
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{accounts: map[string]*account{}, runs: map[string]*run{}}
}

// AddAccount adds an account in state Importing, due at once.
func (s *Store) AddAccount(id, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[id] = &account{
		Account:  consumers.Account{ID: id, Address: strings.ToLower(address), State: consumers.Importing},
		messages: map[string]*message{}, threads: map[string]*thread{}, fetches: map[string]consumers.Fetch{},
	}
}

// Live returns the account's messages that are not deleted, ordered by id.
func (s *Store) Live(accountID string) []consumers.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []consumers.Message
	if a := s.accounts[accountID]; a != nil {
		for _, id := range slices.Sorted(maps.Keys(a.messages)) {
			if m := a.messages[id]; !m.deleted {
				live = append(live, m.Message)
			}
		}
	}
	return live
}

// DeadLetters returns the account's dead letters, oldest first.
func (s *Store) DeadLetters(accountID string) []consumers.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.accounts[accountID]; a != nil {
		return slices.Clone(a.dead)
	}
	return nil
}

// Labels returns the account's labels.
func (s *Store) Labels(accountID string) []consumers.Label {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.accounts[accountID]; a != nil {
		return slices.Clone(a.labels)
	}
	return nil
}

// Fetches returns the account's retry list, due or not, ordered by message id.
func (s *Store) Fetches(accountID string) []consumers.Fetch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []consumers.Fetch
	if a := s.accounts[accountID]; a != nil {
		for _, id := range slices.Sorted(maps.Keys(a.fetches)) {
			list = append(list, a.fetches[id])
		}
	}
	return list
}

// begin locks the store for one call, unless the call is to fail.
func (s *Store) begin(ctx context.Context, method string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Fail != nil {
		if err := s.Fail(method); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

// inAccount runs fn for an account, under the lock.
func (s *Store) inAccount(ctx context.Context, method, id string, fn func(*account) error) error {
	unlock, err := s.begin(ctx, method)
	if err != nil {
		return err
	}
	defer unlock()
	a := s.accounts[id]
	if a == nil {
		return consumers.ErrNoAccount
	}
	return fn(a)
}

// inRun runs fn for a run and its account, under the lock.
func (s *Store) inRun(ctx context.Context, method, id string, fn func(*account, *run) error) error {
	unlock, err := s.begin(ctx, method)
	if err != nil {
		return err
	}
	defer unlock()
	r := s.runs[id]
	if r == nil {
		return consumers.ErrNoRun
	}
	return fn(s.accounts[r.Account], r)
}

// Account implements consumers.Store.
func (s *Store) Account(ctx context.Context, id string) (consumers.Account, error) {
	var got consumers.Account
	err := s.inAccount(ctx, "Account", id, func(a *account) error {
		got = a.Account
		got.Failed = len(a.dead)
		if n := a.incomplete(); n > 0 && a.State.Active() {
			got.Reason = fmt.Sprintf("incomplete: %d", n)
		}
		return nil
	})
	return got, err
}

// SetState implements consumers.Store.
func (s *Store) SetState(ctx context.Context, id string, state consumers.State, reason string) (bool, error) {
	changed := false
	err := s.inAccount(ctx, "SetState", id, func(a *account) error {
		if changed = a.State != state; changed {
			a.State, a.Reason = state, reason
			if state.Active() {
				a.release()
			} else {
				a.ResyncAt, a.WatchExpires = time.Time{}, time.Time{}
			}
		}
		return nil
	})
	return changed, err
}

// SetWatch implements consumers.Store.
func (s *Store) SetWatch(ctx context.Context, id string, w consumers.Watch) error {
	return s.inAccount(ctx, "SetWatch", id, func(a *account) error {
		a.WatchExpires = w.Expires
		return nil
	})
}

// firstJobOpen tells whether the account waits for its first job of a run.
func (a *account) firstJobOpen() bool {
	return (a.State == consumers.Importing || a.State == consumers.Resyncing) && a.active == nil
}

// historyOpen tells whether there is a cursor that counts.
func (a *account) historyOpen() bool {
	return a.Cursor > 0 && (a.State == consumers.Live || a.State.Active() && a.active != nil && a.active.Baseline > 0)
}

func (a *account) release() {
	a.due = time.Time{}
	if a.active != nil {
		a.active.due = time.Time{}
		for _, b := range a.active.batches {
			b.due = time.Time{}
		}
	}
}

// Postpone implements consumers.Store.
func (s *Store) Postpone(ctx context.Context, j consumers.Job, due time.Time) error {
	return s.inAccount(ctx, "Postpone", j.Account, func(a *account) error {
		a.postpone(j, due)
		return nil
	})
}

func (a *account) postpone(j consumers.Job, due time.Time) {
	r := a.active
	switch j.Kind {
	case consumers.History:
		if a.historyOpen() {
			a.due = due
		}
	case consumers.InitialSync:
		if r != nil && (j.Run == "" || j.Run == r.ID) {
			r.due = due
		} else if j.Run == "" && a.firstJobOpen() {
			a.due = due
		}
	case consumers.ThreadBatch:
		if r != nil && r.batches[j.Batch] != nil && r.batches[j.Batch].working {
			r.batches[j.Batch].due = due
		}
	}
}

// DueJobs implements consumers.Store.
func (s *Store) DueJobs(ctx context.Context, now, next time.Time, limit int) ([]consumers.Job, error) {
	unlock, err := s.begin(ctx, "DueJobs")
	if err != nil {
		return nil, err
	}
	defer unlock()
	type dueJob struct {
		consumers.Job
		due time.Time
	}
	var found []dueJob
	add := func(due time.Time, j consumers.Job) {
		if !due.After(now) {
			j.At = now
			found = append(found, dueJob{j, due})
		}
	}
	for id, a := range s.accounts {
		if !a.State.Active() {
			continue
		}
		if a.historyOpen() {
			add(a.due, consumers.Job{Kind: consumers.History, Account: id})
		}
		if a.firstJobOpen() {
			add(a.due, consumers.Job{Kind: consumers.InitialSync, Account: id})
		}
		if r := a.active; r != nil {
			add(r.due, consumers.Job{Kind: consumers.InitialSync, Account: id, Run: r.ID})
			for n, b := range r.batches {
				if b.working {
					add(b.due, consumers.Job{Kind: consumers.ThreadBatch, Account: id, Run: r.ID, Batch: n})
				}
			}
		}
	}
	slices.SortFunc(found, func(x, y dueJob) int {
		if c := x.due.Compare(y.due); c != 0 {
			return c
		}
		return strings.Compare(x.Key(), y.Key())
	})
	var jobs []consumers.Job
	for _, f := range found[:min(limit, len(found))] {
		s.accounts[f.Account].postpone(f.Job, next)
		jobs = append(jobs, f.Job)
	}
	return jobs, nil
}

// ReleaseAll implements consumers.Store.
func (s *Store) ReleaseAll(ctx context.Context) error {
	unlock, err := s.begin(ctx, "ReleaseAll")
	if err != nil {
		return err
	}
	defer unlock()
	for _, a := range s.accounts {
		a.release()
	}
	return nil
}

func (s *Store) newID() int64 {
	s.lastID++
	return s.lastID
}

func (s *Store) newRunID() string { return fmt.Sprintf("run-%d", s.newID()) }
