package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// QuotaStatus is what the guard holds for one account now. It is zero where the guard is off, Redis is away, or the
// embedded Redis is that of a worker that does not run; Known tells.
type QuotaStatus struct {
	Known       bool      `json:"known"`
	Left        int64     `json:"left"`                 // units that could be spent at once; negative: reserved ahead
	Burst       int64     `json:"burst"`                // units of a full bucket
	InFlight    int       `json:"inFlight"`             // calls under way, all workers together
	PausedUntil time.Time `json:"pausedUntil,omitzero"` // Gmail refused: no call before
}

func (q QuotaStatus) String() string {
	if !q.Known {
		return "-"
	}
	s := fmt.Sprintf("%d of %d", max(q.Left, 0), q.Burst)
	if wait := time.Until(q.PausedUntil); wait > 0 {
		s += fmt.Sprintf(", paused %s", wait.Round(time.Second))
	}
	return s
}

// status is all but the quota.
func (m *Mirror) status(ctx context.Context, a consumers.Account) (AccountStatus, error) {
	stored, err := m.store.Counts(ctx, a.ID)
	if err != nil {
		return AccountStatus{}, err
	}
	p, err := m.store.Progress(ctx, a.ID)
	if err != nil {
		return AccountStatus{}, err
	}
	return AccountStatus{
		ID: a.ID, Address: a.Address, State: a.State, Reason: a.Reason, HistoryID: a.Cursor.String(), HistoryAt: a.HistoryAt,
		WatchExpires: a.WatchExpires, Threads: stored.Threads, Messages: stored.Messages, DeadLetters: a.Failed,
		Run: RunStatus{Listed: p.Listed, Stored: p.Stored, Gone: p.Gone, Failed: p.Failed, Open: p.Open},
	}, nil
}

// waiting is the reason of an account whose calls wait for Gmail.
func waiting(reason string, until time.Time) string {
	if time.Until(until) <= 0 {
		return reason
	}
	said := "paused by Gmail until " + until.Local().Format("15:04:05")
	if reason != "" {
		said += "; " + reason
	}
	return said
}

// quota reads an account's buckets. That Redis is away is not the reader's problem: the worker says it in its log.
func (m *Mirror) quota(ctx context.Context, account string) QuotaStatus {
	if m.guard == nil || m.holds() && !m.isWorker {
		return QuotaStatus{} // off, or a Redis of its own, in which nobody has called yet
	}
	snapshot, err := m.guard.Snapshot(ctx, account)
	if err != nil {
		return QuotaStatus{}
	}
	q := QuotaStatus{Known: true, Left: snapshot.User.Tokens, Burst: snapshot.User.Capacity, InFlight: snapshot.InFlight}
	if pause := max(snapshot.User.Penalty, snapshot.Project.Penalty); pause > 0 {
		q.PausedUntil = time.Now().Add(pause)
	}
	return q
}

func unknownQuota(context.Context, string) QuotaStatus { return QuotaStatus{} }

// guardSummary says by what the worker measures itself, for the log at its start.
func (m *Mirror) guardSummary() string {
	if m.guard == nil {
		return "off: no call is guarded"
	}
	g := m.cfg.Guard
	return fmt.Sprintf("price list %s, %d units a minute for a user, %d for the project %s", g.PriceList, g.UserLimit, g.ProjectLimit, g.Project)
}
