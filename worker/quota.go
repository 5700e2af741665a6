package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// QuotaReport is what the guard holds now, in Redis.
type QuotaReport struct {
	Project  ProjectQuota   `json:"project"`
	Accounts []AccountQuota `json:"accounts"` // ordered by id
}

// ProjectQuota is the bucket that all accounts share.
type ProjectQuota struct {
	Name string   `json:"name"`
	Day  DayQuota `json:"day"`
	BucketQuota
}

// DayQuota is what was charged to the project today.
type DayQuota struct {
	Used    int64   `json:"used"`           // units
	Limit   int64   `json:"limit"`          // at which imports wait for the next day; 0: none is set
	TurnsIn float64 `json:"turnsInSeconds"` // until the next day
}

// AccountQuota is one account's bucket and its calls.
type AccountQuota struct {
	ID          string `json:"id"`
	Address     string `json:"address,omitempty"`
	InFlight    int    `json:"inFlight"`    // calls reserved or under way, all workers together
	InFlightCap int    `json:"inFlightCap"` // lower than configured for a while after Gmail refused so many at once
	BucketQuota
}

// BucketQuota is one bucket.
type BucketQuota struct {
	Limit       int64     `json:"limit"`                // configured, units a minute
	Refill      int64     `json:"refill"`               // units a minute that follow from it
	Effective   int64     `json:"effective"`            // of these for now: less for a while after Gmail refused calls
	Burst       int64     `json:"burst"`                // units of a full bucket
	Units       int64     `json:"units"`                // that it holds; negative: reserved ahead, or paused
	Wait        float64   `json:"waitSeconds"`          // until it holds something again
	PausedUntil time.Time `json:"pausedUntil,omitzero"` // Gmail refused: no call before
}

// Quota reads the project's bucket and those of all accounts, or only of the account with this id. It is an error that
// there are none to read: the guard is off, Redis is away, or the buckets are in a worker that does not run.
func (m *Mirror) Quota(ctx context.Context, account string) (QuotaReport, error) {
	if err := m.bucketsExist(); err != nil {
		return QuotaReport{}, err
	}
	accounts, err := m.store.Accounts(ctx)
	if err != nil {
		return QuotaReport{}, err
	}
	snap, err := m.guard.Snapshot(ctx, account)
	if err != nil {
		return QuotaReport{}, err
	}
	report := QuotaReport{
		Project: ProjectQuota{
			m.cfg.Guard.Project, DayQuota{snap.Day.Used, snap.Day.Limit, snap.Day.TurnsIn.Round(time.Second).Seconds()},
			bucketQuota(snap.Project, m.cfg.Guard.ProjectLimit),
		},
		Accounts: []AccountQuota{},
	}
	for _, a := range accounts {
		if account != "" && a.ID != account {
			continue
		}
		if snap, err = m.guard.Snapshot(ctx, a.ID); err != nil {
			return QuotaReport{}, err
		}
		report.Accounts = append(report.Accounts, AccountQuota{
			ID: a.ID, Address: a.Address, InFlight: snap.InFlight, InFlightCap: snap.InFlightCap,
			BucketQuota: bucketQuota(snap.User, m.cfg.Guard.UserLimit),
		})
	}
	return report, nil
}

// ResetQuota forgets what Gmail refused an account, or the project if account is "", see gmailquota.Guard.Reset.
func (m *Mirror) ResetQuota(ctx context.Context, account string) error {
	if err := m.bucketsExist(); err != nil {
		return err
	}
	return m.guard.Reset(ctx, account)
}

func (m *Mirror) bucketsExist() error {
	if m.guard == nil {
		return errors.New("guard.enabled is false: there are no buckets")
	}
	if m.holds() && !m.isWorker {
		return fmt.Errorf("redis.url is embedded, and no worker runs on %s whose buckets these would be: start `gmailsync run`", m.cfg.Store.Path)
	}
	return nil
}

func bucketQuota(b gmailquota.BucketState, limit int64) BucketQuota {
	q := BucketQuota{Limit: limit, Refill: b.Refill, Effective: b.Effective, Burst: b.Capacity, Units: b.Tokens}
	fill := time.Duration(b.Capacity) * time.Minute / time.Duration(max(b.Effective, 1))
	q.Wait = max(b.FullIn-fill, 0).Round(time.Millisecond).Seconds()
	if b.Penalty > 0 {
		q.PausedUntil = time.Now().Add(b.Penalty).Round(time.Millisecond)
	}
	return q
}
