package modeltest

import (
	"context"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// store is a process's way to the store. A call may fail before it has its effect, or after it: then the store has it and
// the process does not know.
type store struct {
	to consumers.Store
	p  *process
}

// commit makes one call of the store.
func commit[T any](s store, method string, do func() (T, error)) (T, error) {
	var none T
	dice := s.p.weather.roll(method)
	fault := dice.IntN(100) < s.p.weather.percent(&s.p.weather.store)
	late := dice.IntN(2) == 0
	if err := s.p.step("before " + method); err != nil {
		return none, err
	}
	if fault && !late {
		return none, errStore
	}
	v, err := do()
	if s.p.step("after "+method) != nil {
		return none, errDead
	}
	if fault {
		return none, errStore
	}
	return v, err
}

// commit1 is commit for methods that return nothing else.
func commit1(s store, method string, do func() error) error {
	_, err := commit(s, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

type pair[A, B any] struct {
	a A
	b B
}

// Account implements consumers.Store.
func (s store) Account(ctx context.Context, id string) (consumers.Account, error) {
	return commit(s, "Account", func() (consumers.Account, error) { return s.to.Account(ctx, id) })
}

// SetState implements consumers.Store.
func (s store) SetState(ctx context.Context, account string, state consumers.State, reason string) (bool, error) {
	return commit(s, "SetState", func() (bool, error) { return s.to.SetState(ctx, account, state, reason) })
}

// SetWatch implements consumers.Store.
func (s store) SetWatch(ctx context.Context, account string, w consumers.Watch) error {
	return commit1(s, "SetWatch", func() error { return s.to.SetWatch(ctx, account, w) })
}

// SaveLabels implements consumers.Store.
func (s store) SaveLabels(ctx context.Context, account string, labels []consumers.Label, now time.Time) error {
	return commit1(s, "SaveLabels", func() error { return s.to.SaveLabels(ctx, account, labels, now) })
}

// SetScope implements consumers.Store.
func (s store) SetScope(ctx context.Context, account string, scope consumers.Scope, now time.Time) (bool, error) {
	return commit(s, "SetScope", func() (bool, error) { return s.to.SetScope(ctx, account, scope, now) })
}

// StartRun implements consumers.Store.
func (s store) StartRun(
	ctx context.Context, account string, kind consumers.RunKind, now time.Time,
) (consumers.Run, bool, error) {
	v, err := commit(s, "StartRun", func() (pair[consumers.Run, bool], error) {
		a, b, err := s.to.StartRun(ctx, account, kind, now)
		if b && err == nil {
			s.p.book.ran(account)
		}
		return pair[consumers.Run, bool]{a, b}, err
	})
	return v.a, v.b, err
}

// ActiveRun implements consumers.Store.
func (s store) ActiveRun(ctx context.Context, account string) (consumers.Run, error) {
	return commit(s, "ActiveRun", func() (consumers.Run, error) { return s.to.ActiveRun(ctx, account) })
}

// PinBaseline implements consumers.Store.
func (s store) PinBaseline(ctx context.Context, run string, baseline consumers.HistoryID) error {
	return commit1(s, "PinBaseline", func() error { return s.to.PinBaseline(ctx, run, baseline) })
}

// AddPage implements consumers.Store.
func (s store) AddPage(ctx context.Context, run, pageToken string, page consumers.ThreadPage, batchSize int) error {
	return commit1(s, "AddPage", func() error { return s.to.AddPage(ctx, run, pageToken, page, batchSize) })
}

// Relist implements consumers.Store.
func (s store) Relist(ctx context.Context, run, pageToken string) error {
	return commit1(s, "Relist", func() error { return s.to.Relist(ctx, run, pageToken) })
}

// QueueAbsent implements consumers.Store.
func (s store) QueueAbsent(ctx context.Context, run string, batchSize int) (int, error) {
	return commit(s, "QueueAbsent", func() (int, error) { return s.to.QueueAbsent(ctx, run, batchSize) })
}

// OpenBatches implements consumers.Store.
func (s store) OpenBatches(ctx context.Context, run string, window int, due time.Time) ([]consumers.Batch, error) {
	return commit(s, "OpenBatches", func() ([]consumers.Batch, error) { return s.to.OpenBatches(ctx, run, window, due) })
}

// Batch implements consumers.Store.
func (s store) Batch(ctx context.Context, account string, batch int64) (consumers.Batch, bool, error) {
	v, err := commit(s, "Batch", func() (pair[consumers.Batch, bool], error) {
		a, b, err := s.to.Batch(ctx, account, batch)
		return pair[consumers.Batch, bool]{a, b}, err
	})
	return v.a, v.b, err
}

// SaveThread implements consumers.Store.
func (s store) SaveThread(ctx context.Context, b consumers.Batch, t consumers.Thread, now time.Time) (bool, error) {
	return commit(s, "SaveThread", func() (bool, error) {
		ok, err := s.to.SaveThread(ctx, b, t, now)
		if err == nil {
			s.p.book.stored(b.Account, consumertest.OpGetThread, t.ID)
		}
		return ok, err
	})
}

// AcceptThread implements consumers.Store.
func (s store) AcceptThread(ctx context.Context, b consumers.Batch, t consumers.Thread, now time.Time) error {
	return commit1(s, "AcceptThread", func() error { return s.to.AcceptThread(ctx, b, t, now) })
}

// ThreadGone implements consumers.Store.
func (s store) ThreadGone(ctx context.Context, b consumers.Batch, threadID string, now time.Time) error {
	return commit1(s, "ThreadGone", func() error { return s.to.ThreadGone(ctx, b, threadID, now) })
}

// ThreadFailed implements consumers.Store.
func (s store) ThreadFailed(
	ctx context.Context, b consumers.Batch, threadID string, cause string, maxAttempts int, now time.Time,
) (bool, error) {
	return commit(s, "ThreadFailed", func() (bool, error) {
		return s.to.ThreadFailed(ctx, b, threadID, cause, maxAttempts, now)
	})
}

// FinishBatch implements consumers.Store.
func (s store) FinishBatch(ctx context.Context, b consumers.Batch) (consumers.Run, error) {
	return commit(s, "FinishBatch", func() (consumers.Run, error) { return s.to.FinishBatch(ctx, b) })
}

// FinishRun implements consumers.Store.
func (s store) FinishRun(ctx context.Context, run string, now time.Time) (bool, error) {
	return commit(s, "FinishRun", func() (bool, error) { return s.to.FinishRun(ctx, run, now) })
}

// Messages implements consumers.Store.
func (s store) Messages(ctx context.Context, account string, ids []string) (map[string]consumers.HistoryID, error) {
	return commit(s, "Messages", func() (map[string]consumers.HistoryID, error) { return s.to.Messages(ctx, account, ids) })
}

// Threads implements consumers.Store.
func (s store) Threads(ctx context.Context, account string, ids []string) (map[string]consumers.ThreadState, error) {
	return commit(s, "Threads", func() (map[string]consumers.ThreadState, error) { return s.to.Threads(ctx, account, ids) })
}

// ApplyHistory implements consumers.Store.
func (s store) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	return commit1(s, "ApplyHistory", func() error {
		err := s.to.ApplyHistory(ctx, account, step, now)
		if err == nil {
			s.p.book.step(account, step)
		}
		return err
	})
}

// DueFetches implements consumers.Store.
func (s store) DueFetches(ctx context.Context, account string, now time.Time, limit int) ([]consumers.Fetch, error) {
	return commit(s, "DueFetches", func() ([]consumers.Fetch, error) { return s.to.DueFetches(ctx, account, now, limit) })
}

// HistoryDone implements consumers.Store.
func (s store) HistoryDone(ctx context.Context, account string, now, next time.Time) error {
	return commit1(s, "HistoryDone", func() error { return s.to.HistoryDone(ctx, account, now, next) })
}

// AddDeadLetter implements consumers.Store.
func (s store) AddDeadLetter(ctx context.Context, d consumers.DeadLetter) error {
	return commit1(s, "AddDeadLetter", func() error { return s.to.AddDeadLetter(ctx, d) })
}

// ReplayDeadLetters implements consumers.Store.
func (s store) ReplayDeadLetters(
	ctx context.Context, account string, ids []int64, batchSize int, now time.Time,
) (int, error) {
	return commit(s, "ReplayDeadLetters", func() (int, error) {
		return s.to.ReplayDeadLetters(ctx, account, ids, batchSize, now)
	})
}

// DropDeadLetters implements consumers.Store.
func (s store) DropDeadLetters(ctx context.Context, account string, ids []int64) (int, error) {
	return commit(s, "DropDeadLetters", func() (int, error) { return s.to.DropDeadLetters(ctx, account, ids) })
}

// Postpone implements consumers.Store.
func (s store) Postpone(ctx context.Context, j consumers.Job, due time.Time) error {
	return commit1(s, "Postpone", func() error { return s.to.Postpone(ctx, j, due) })
}

// DueJobs implements consumers.Store.
func (s store) DueJobs(ctx context.Context, now, next time.Time, limit int) ([]consumers.Job, error) {
	return commit(s, "DueJobs", func() ([]consumers.Job, error) { return s.to.DueJobs(ctx, now, next, limit) })
}

// ReleaseAll implements consumers.Store.
func (s store) ReleaseAll(ctx context.Context) error {
	return commit1(s, "ReleaseAll", func() error { return s.to.ReleaseAll(ctx) })
}
