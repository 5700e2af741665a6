package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/worker"
)

func (a *app) dlqCommand() *cobra.Command {
	dlq := &cobra.Command{
		Use:   "dlq",
		Short: "List, replay and drop dead letters, the work that was given up; works beside a running worker",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("dlq: say list, replay or drop")}
		},
	}
	dlq.AddCommand(a.dlqList(),
		a.onLetters("replay", "Put the work of dead letters back, as if it had never failed", a.replayLetters),
		a.onLetters("drop", "Forget dead letters; what they were about is missing until the next resync", a.dropLetters))
	return dlq
}

func (a *app) dlqList() *cobra.Command {
	var account string
	c := a.withJSON(a.withConfig(&cobra.Command{
		Use:   "list",
		Short: "List dead letters with their causes, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onAnyAccount(cmd.Context(), account, func(m *worker.Mirror, id string) error {
				letters, err := m.DeadLetters(cmd.Context(), id)
				if err != nil {
					return fmt.Errorf("dlq list: %w", err)
				}
				return a.printLetters(letters)
			})
		},
	}))
	c.Flags().StringVar(&account, "account", "", "one account, by id or address; default all")
	return c
}

func (a *app) printLetters(letters []worker.DeadLetter) error {
	if a.asJSON {
		return a.printJSON(letters)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tACCOUNT\tCONSUMER\tTHREAD\tMESSAGE\tATTEMPTS\tAT\tCAUSE")
	for _, d := range letters {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.ID, d.Account, d.Kind, orDash(d.ThreadID), orDash(d.MessageID),
			d.Attempts, d.At.Local().Format("2006-01-02 15:04:05"), d.Cause)
	}
	return w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// onLetters is a command about the letters that are named by id, by account, or by --all.
func (a *app) onLetters(use, short string, do func(context.Context, *worker.Mirror, []worker.DeadLetter) error) *cobra.Command {
	var account string
	var all bool
	c := a.withJSON(a.withConfig(&cobra.Command{
		Use:   use + " ID… | --account A | --all",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := letterIDs(args, account, all)
			if err != nil {
				return usageError{fmt.Errorf("dlq %s: %w", use, err)}
			}
			return a.onAnyAccount(cmd.Context(), account, func(m *worker.Mirror, id string) error {
				letters, err := chosenLetters(cmd.Context(), m, id, ids)
				if err == nil {
					err = do(cmd.Context(), m, letters)
				}
				if err != nil {
					return fmt.Errorf("dlq %s: %w", use, err)
				}
				return nil
			})
		},
	}))
	c.Flags().StringVar(&account, "account", "", "all letters of one account, by id or address")
	c.Flags().BoolVar(&all, "all", false, "all letters of all accounts")
	return c
}

// letterIDs reads the ids; none stand for the letters of the account, or for all.
func letterIDs(args []string, account string, all bool) ([]int64, error) {
	ways := 0
	for _, given := range []bool{len(args) > 0, account != "", all} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, errors.New("say which: ids as `gmailsync dlq list` shows them, or --account A, or --all")
	}
	ids := make([]int64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("id %q: want a number, as `gmailsync dlq list` shows it", arg)
		}
		ids[i] = n
	}
	return ids, nil
}

func chosenLetters(ctx context.Context, m *worker.Mirror, account string, ids []int64) ([]worker.DeadLetter, error) {
	letters, err := m.DeadLetters(ctx, account)
	if err != nil || len(ids) == 0 {
		return letters, err
	}
	letters = slices.DeleteFunc(letters, func(d worker.DeadLetter) bool { return !slices.Contains(ids, d.ID) })
	for _, id := range ids {
		if !slices.ContainsFunc(letters, func(d worker.DeadLetter) bool { return d.ID == id }) {
			return nil, fmt.Errorf("no dead letter %d; nothing was done", id)
		}
	}
	return letters, nil
}

// lettersDone is what replay and drop print.
type lettersDone struct {
	Replayed  int `json:"replayed"`
	Dropped   int `json:"dropped"`
	Meanwhile int `json:"storedMeanwhile"` // nothing was left to do for them
}

func (a *app) replayLetters(ctx context.Context, m *worker.Mirror, letters []worker.DeadLetter) error {
	n, err := m.ReplayDeadLetters(ctx, letters)
	if err != nil {
		return err
	}
	done := lettersDone{Replayed: n, Meanwhile: len(letters) - n}
	if a.asJSON {
		return a.printJSON(done)
	}
	_, err = fmt.Fprintf(a.stdout, "%d replayed, %d were stored meanwhile\n", done.Replayed, done.Meanwhile)
	return err
}

func (a *app) dropLetters(ctx context.Context, m *worker.Mirror, letters []worker.DeadLetter) error {
	n, err := m.DropDeadLetters(ctx, letters)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(lettersDone{Dropped: n})
	}
	_, err = fmt.Fprintf(a.stdout, "%d dropped\n", n)
	return err
}
