package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/worker"
)

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) statusCommand() *cobra.Command {
	return a.onAccounts("status", "Show accounts, progress, lag and quota; works beside a running worker", a.printStatus)
}

func (a *app) printStatus(m *worker.Mirror, accounts []worker.AccountStatus) error {
	if !m.WorkerRuns() {
		fmt.Fprintln(a.stderr, "gmailsync: no worker runs on this store: it stays as it is until `gmailsync run` is started")
	}
	if a.asJSON {
		return a.printJSON(accounts)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACCOUNT\tADDRESS\tSTATE\tRUN\tTHREADS\tMESSAGES\tHISTORY AGE\tQUOTA LEFT\tIN FLIGHT\tDEAD LETTERS\tREASON")
	for _, s := range accounts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\t%d\t%s\n", s.ID, s.Address, s.State, s.Run, s.Threads, s.Messages,
			age(s.HistoryAt), s.Quota, s.Quota.InFlight, s.DeadLetters, s.Reason)
	}
	return w.Flush()
}

// age says how long ago t was, "-" if never.
func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String()
}

func (a *app) exportCommand() *cobra.Command {
	var dir string
	c := a.onAccount("export", "Write an account's mirrored messages to stdout, one JSON line each",
		func(ctx context.Context, m *worker.Mirror, id string) error { return a.export(ctx, m, id, dir) })
	c.Flags().StringVar(&dir, "attachments", "",
		"also fetch the attachments into this folder, through the quota guard; files that are there are not fetched again")
	return c
}

// export goes on where an attachment cannot be had, and fails at its end.
func (a *app) export(ctx context.Context, m *worker.Mirror, account, dir string) error {
	boundHeap()
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	if dir == "" {
		return m.EachMessage(ctx, account, func(msg worker.Message) error { return enc.Encode(msg) })
	}
	folder, err := worker.OpenAttachmentFolder(dir)
	if err != nil {
		return fmt.Errorf("--attachments: %w", err)
	}
	defer func() { _ = folder.Close() }()
	var total worker.SavedAttachments
	err = m.EachMessage(ctx, account, func(msg worker.Message) error {
		saved, err := m.SaveAttachments(ctx, account, &msg, folder)
		total.Add(saved)
		if err != nil {
			return err
		}
		return enc.Encode(msg)
	})
	fmt.Fprintf(a.stderr, "gmailsync: attachments: %d fetched, %d there already, %d gone at Gmail, %d failed\n",
		total.Fetched, total.Present, total.Gone, total.Failed)
	if err == nil && total.Failed > 0 {
		err = errReported
	}
	return err
}
