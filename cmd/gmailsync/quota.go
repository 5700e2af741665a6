package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/worker"
)

func (a *app) quotaCommand() *cobra.Command {
	quota := &cobra.Command{
		Use:   "quota",
		Short: "Show and reset what the quota guard holds, and plan limits",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("quota: say show, reset or plan")}
		},
	}
	quota.AddCommand(a.quotaShow(), a.quotaReset(), a.quotaPlan())
	return quota
}

func (a *app) quotaShow() *cobra.Command {
	var account string
	c := a.withJSON(a.withConfig(&cobra.Command{
		Use:   "show",
		Short: "Show the buckets in Redis: the project's and each account's",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onAnyAccount(cmd.Context(), account, func(m *worker.Mirror, id string) error {
				report, err := m.Quota(cmd.Context(), id)
				if err != nil {
					return fmt.Errorf("quota show: %w", err)
				}
				return a.printQuota(report)
			})
		},
	}))
	c.Flags().StringVar(&account, "account", "", "one account, by id or address; default all")
	return c
}

// onAnyAccount opens the mirror and finds the account's id; "" stays "".
func (a *app) onAnyAccount(ctx context.Context, account string, do func(m *worker.Mirror, id string) error) error {
	return a.withMirror(ctx, func(m *worker.Mirror) error {
		if account == "" {
			return do(m, "")
		}
		id, err := m.Resolve(ctx, account)
		if err != nil {
			return err
		}
		return do(m, id)
	})
}

func (a *app) printQuota(r worker.QuotaReport) error {
	if a.asJSON {
		return a.printJSON(r)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BUCKET\tADDRESS\tLIMIT\tREFILL NOW\tUNITS\tWAIT\tPAUSED\tIN FLIGHT")
	line := func(name, address string, b worker.BucketQuota, inFlight string) {
		fmt.Fprintf(w, "%s\t%s\t%d/min\t%d of %d/min\t%d of %d\t%s\t%s\t%s\n",
			name, address, b.Limit, b.Effective, b.Refill, b.Units, b.Burst, seconds(b.Wait), paused(b.PausedUntil), inFlight)
	}
	line("project "+r.Project.Name, "", r.Project.BucketQuota, "")
	for _, q := range r.Accounts {
		line(q.ID, q.Address, q.BucketQuota, fmt.Sprintf("%d of %d", q.InFlight, q.InFlightCap))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	day := r.Project.Day
	of := "no limit is set"
	if day.Limit > 0 {
		of = fmt.Sprintf("of the %d at which imports wait", day.Limit)
	}
	fmt.Fprintf(a.stdout, "today: %d units, %s; the day turns in %s\n", day.Used, of, seconds(day.TurnsIn))
	return nil
}

func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// paused says until when, and how long that is.
func paused(until time.Time) string {
	left := time.Until(until)
	if left <= 0 {
		return "-"
	}
	return fmt.Sprintf("until %s (%s)", until.Format("2006-01-02 15:04:05"), left.Round(time.Second))
}

func (a *app) quotaReset() *cobra.Command {
	var account string
	var yes bool
	c := a.withConfig(&cobra.Command{
		Use:   "reset [--account A] --yes",
		Short: "End the pauses after Gmail's refusals, of an account or of the project; its bucket starts empty",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usageError{errors.New("quota reset: calls will be made that Gmail told to wait: add --yes if they shall")}
			}
			return a.onAnyAccount(cmd.Context(), account, func(m *worker.Mirror, id string) error {
				return a.resetQuota(cmd.Context(), m, id)
			})
		},
	})
	c.Flags().StringVar(&account, "account", "", "one account, by id or address; default the project's own bucket")
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	return c
}

func (a *app) resetQuota(ctx context.Context, m *worker.Mirror, id string) error {
	before, err := m.Quota(ctx, id)
	if err == nil {
		err = m.ResetQuota(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("quota reset: %w", err)
	}
	after, err := m.Quota(ctx, id)
	if err != nil {
		return fmt.Errorf("quota reset: it is done, but cannot be shown: %w", err)
	}
	name, was, now := "project "+before.Project.Name, before.Project.BucketQuota, after.Project.BucketQuota
	if id != "" {
		name, was, now = "account "+id, before.Accounts[0].BucketQuota, after.Accounts[0].BucketQuota
	}
	said := "it was not paused"
	if left := paused(was.PausedUntil); left != "-" {
		said = "the pause " + left + " is over"
	}
	when := "from now on"
	if now.Wait > 0 {
		when = "in " + seconds(now.Wait) + ", when what may be reserved is paid"
	}
	fmt.Fprintf(a.stdout, "%s: %s; its bucket is empty and refills %s. Jobs that wait already come back at the time they were told.\n", name, said, when)
	return nil
}
