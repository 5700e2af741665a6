package consumertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// view returns the run as callers see it.
func (r *run) view() consumers.Run {
	v := r.Run
	p := &v.Progress
	p.Open = p.Listed - p.Stored - p.Gone - p.Failed
	for _, b := range r.batches {
		if b.working {
			p.Working++
		} else {
			p.Pending++
		}
	}
	return v
}

// settle moves an open thread to another state and counts it.
func (r *run) settle(threadID, state string) {
	rt := r.threads[threadID]
	if rt == nil || rt.state != "open" {
		return
	}
	rt.state = state
	switch state {
	case "stored":
		r.Progress.Stored++
	case "gone":
		r.Progress.Gone++
	case "failed":
		r.Progress.Failed++
	}
}

// open returns a batch's threads that are still to fetch, newest first.
func (r *run) open(batchID int64) []string {
	var ids []string
	for id, rt := range r.threads {
		if rt.batch == batchID && rt.state == "open" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// StartRun implements consumers.Store.
func (s *Store) StartRun(ctx context.Context, id string, kind consumers.RunKind, now time.Time) (consumers.Run, bool, error) {
	var got consumers.Run
	started := false
	err := s.inAccount(ctx, "StartRun", id, func(a *account) error {
		if started = a.active == nil; started {
			s.startRun(a, kind, now)
		}
		got = a.active.view()
		return nil
	})
	return got, started, err
}

func (s *Store) startRun(a *account, kind consumers.RunKind, now time.Time) {
	a.active = &run{
		Run: consumers.Run{ID: s.newRunID(), Account: a.ID, Kind: kind}, due: now,
		threads: map[string]*runThread{}, batches: map[int64]*batch{},
	}
	s.runs[a.active.ID] = a.active
	if kind == consumers.RunResync {
		a.ResyncAt = now
	}
	if a.State.Active() {
		a.State, a.Reason = consumers.Importing, ""
		if kind == consumers.RunResync {
			a.State = consumers.Resyncing
		}
	}
}

// ActiveRun implements consumers.Store.
func (s *Store) ActiveRun(ctx context.Context, id string) (consumers.Run, error) {
	var got consumers.Run
	err := s.inAccount(ctx, "ActiveRun", id, func(a *account) error {
		if a.active == nil {
			return consumers.ErrNoRun
		}
		got = a.active.view()
		return nil
	})
	return got, err
}

// PinBaseline implements consumers.Store.
func (s *Store) PinBaseline(ctx context.Context, runID string, baseline consumers.HistoryID) error {
	return s.inRun(ctx, "PinBaseline", runID, func(a *account, r *run) error {
		if r.Baseline != 0 || r.finished {
			return nil
		}
		r.Baseline = baseline
		if r.Kind == consumers.RunResync {
			a.resynced = max(a.resynced, baseline)
		}
		if a.Cursor == 0 || r.Kind == consumers.RunResync {
			a.Cursor = max(a.Cursor, baseline)
		}
		return nil
	})
}

// AddPage implements consumers.Store.
func (s *Store) AddPage(ctx context.Context, runID, pageToken string, page consumers.ThreadPage, batchSize int) error {
	return s.inRun(ctx, "AddPage", runID, func(a *account, r *run) error {
		if r.Baseline == 0 || r.Listed || r.finished || r.PageToken != pageToken {
			return nil
		}
		var fetch []string
		for _, ref := range page.Threads {
			if r.threads[ref.ID] != nil {
				continue
			}
			rt := &runThread{state: "open"}
			r.threads[ref.ID] = rt
			r.Progress.Listed++
			if r.Kind == consumers.RunResync && a.current(r, ref) {
				r.settle(ref.ID, "stored")
				continue
			}
			fetch = append(fetch, ref.ID)
		}
		r.PageToken, r.Listed = page.Next, page.Next == ""
		return s.addBatches(r, fetch, batchSize)
	})
}

// Relist implements consumers.Store.
func (s *Store) Relist(ctx context.Context, runID, pageToken string) error {
	return s.inRun(ctx, "Relist", runID, func(_ *account, r *run) error {
		if !r.Listed && r.PageToken == pageToken {
			r.PageToken = ""
		}
		return nil
	})
}

// current tells whether the stored thread is the listed one. A record after the run's baseline proves nothing: changes
// between the old cursor and the baseline are still unknown.
func (a *account) current(r *run, ref consumers.ThreadRef) bool {
	th := a.threads[ref.ID]
	return th != nil && a.whole(ref.ID) && (a.liveIn(ref.ID) > 0 || a.outsideIn(ref.ID)) &&
		(th.snapshot == ref.HistoryID || th.history == ref.HistoryID && ref.HistoryID <= r.Baseline)
}

func (s *Store) addBatches(r *run, ids []string, size int) error {
	if size < 1 {
		return fmt.Errorf("batch size %d: want at least 1", size)
	}
	for chunk := range slices.Chunk(ids, size) {
		n := s.newID()
		r.batches[n] = &batch{}
		for _, id := range chunk {
			r.threads[id].batch = n
		}
	}
	return nil
}

// QueueAbsent implements consumers.Store.
func (s *Store) QueueAbsent(ctx context.Context, runID string, batchSize int) (int, error) {
	n := 0
	err := s.inRun(ctx, "QueueAbsent", runID, func(a *account, r *run) error {
		if r.Kind != consumers.RunResync || !r.Listed || r.AbsentQueued {
			return nil
		}
		if a.rule.Query != "" {
			a.removeAbsent(r)
		}
		var absent []string
		for id := range a.threads {
			if r.threads[id] == nil && a.liveIn(id) > 0 {
				r.threads[id] = &runThread{state: "open"}
				absent = append(absent, id)
			}
		}
		slices.Sort(absent)
		n = len(absent)
		r.AbsentQueued = true
		r.Progress.Listed += n
		return s.addBatches(r, absent, batchSize)
	})
	return n, err
}

// OpenBatches implements consumers.Store.
func (s *Store) OpenBatches(ctx context.Context, runID string, window int, due time.Time) ([]consumers.Batch, error) {
	var opened []consumers.Batch
	err := s.inRun(ctx, "OpenBatches", runID, func(_ *account, r *run) error {
		room := window - r.view().Progress.Working
		for _, id := range slices.Sorted(maps.Keys(r.batches)) {
			b := r.batches[id]
			if b.working || room <= 0 {
				continue
			}
			room--
			b.working, b.due = true, due
			opened = append(opened, consumers.Batch{ID: id, Run: r.ID, Account: r.Account, Threads: r.open(id)})
		}
		return nil
	})
	return opened, err
}

// Batch implements consumers.Store.
func (s *Store) Batch(ctx context.Context, id string, batchID int64) (consumers.Batch, bool, error) {
	var got consumers.Batch
	ok := false
	err := s.inAccount(ctx, "Batch", id, func(a *account) error {
		r := a.active
		if ok = r != nil && r.batches[batchID] != nil && r.batches[batchID].working; ok {
			got = consumers.Batch{ID: batchID, Run: r.ID, Account: id, Threads: r.open(batchID)}
		}
		return nil
	})
	return got, ok, err
}

// inBatch runs fn for a batch's run, under the lock.
func (s *Store) inBatch(ctx context.Context, method string, b consumers.Batch, fn func(*account, *run) error) error {
	return s.inRun(ctx, method, b.Run, func(a *account, r *run) error {
		if r.Account != b.Account {
			return consumers.ErrNoRun
		}
		return fn(a, r)
	})
}

// floor is the history id that the mailbox was past when the run's threads were fetched; of a replay it is not known.
func (r *run) floor() consumers.HistoryID {
	if r.Kind == consumers.RunReplay {
		return 0
	}
	return r.Baseline
}

// SaveThread implements consumers.Store.
func (s *Store) SaveThread(ctx context.Context, b consumers.Batch, th consumers.Thread, _ time.Time) (bool, error) {
	complete := true
	err := s.inBatch(ctx, "SaveThread", b, func(a *account, r *run) error {
		if r.finished {
			return nil
		}
		if complete = a.saveSnapshot(th, r.floor()); complete {
			r.settle(th.ID, "stored")
		}
		return nil
	})
	return complete, err
}

// AcceptThread implements consumers.Store.
func (s *Store) AcceptThread(ctx context.Context, b consumers.Batch, th consumers.Thread, now time.Time) error {
	return s.inBatch(ctx, "AcceptThread", b, func(a *account, r *run) error {
		if r.finished {
			return nil
		}
		if !a.saveSnapshot(th, r.floor()) {
			a.fetchWanted(th.ID, now)
			a.saveSnapshot(th, r.floor())
		}
		r.settle(th.ID, "stored")
		return nil
	})
}

// ThreadGone implements consumers.Store.
func (s *Store) ThreadGone(ctx context.Context, b consumers.Batch, threadID string, _ time.Time) error {
	return s.inBatch(ctx, "ThreadGone", b, func(a *account, r *run) error {
		if r.finished {
			return nil
		}
		for _, m := range a.messages {
			if m.ThreadID == threadID && (!m.deleted || m.outside) {
				a.delete(threadID, m.ID, m.HistoryID)
			}
		}
		a.dropThreadLetters(threadID)
		r.settle(threadID, "gone")
		return nil
	})
}

// ThreadFailed implements consumers.Store.
func (s *Store) ThreadFailed(ctx context.Context, b consumers.Batch, threadID, cause string, maxAttempts int, now time.Time) (bool, error) {
	dead := false
	err := s.inBatch(ctx, "ThreadFailed", b, func(a *account, r *run) error {
		rt := r.threads[threadID]
		if rt == nil || rt.state != "open" {
			return nil
		}
		rt.attempts++
		if dead = rt.attempts >= maxAttempts; dead {
			r.settle(threadID, "failed")
			if th := a.threads[threadID]; th != nil {
				th.complete = false
			}
			s.bury(a, consumers.DeadLetter{Account: b.Account, Kind: consumers.ThreadBatch, Run: b.Run,
				ThreadID: threadID, Cause: cause, Attempts: rt.attempts, At: now})
		}
		return nil
	})
	return dead, err
}

// FinishBatch implements consumers.Store.
func (s *Store) FinishBatch(ctx context.Context, b consumers.Batch) (consumers.Run, error) {
	var got consumers.Run
	err := s.inBatch(ctx, "FinishBatch", b, func(_ *account, r *run) error {
		if known := r.batches[b.ID]; known != nil && known.working && len(r.open(b.ID)) == 0 {
			delete(r.batches, b.ID)
		}
		got = r.view()
		return nil
	})
	return got, err
}

// FinishRun implements consumers.Store.
func (s *Store) FinishRun(ctx context.Context, runID string, now time.Time) (bool, error) {
	done := false
	err := s.inRun(ctx, "FinishRun", runID, func(a *account, r *run) error {
		if r.finished || !r.Listed || r.view().Progress.Open > 0 || r.Kind == consumers.RunResync && !r.AbsentQueued {
			return nil
		}
		done, r.finished, a.active = true, true, nil
		r.threads, r.batches = map[string]*runThread{}, map[int64]*batch{}
		if a.State.Active() {
			a.State, a.Reason, a.due = consumers.Live, "", now
		}
		return nil
	})
	return done, err
}
