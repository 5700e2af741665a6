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

const (
	deepDefault  = 100 // threads that --deep alone fetches, 4,000 units
	printedLines = 50  // differences in a table; --json has all
)

func (a *app) verifyCommand() *cobra.Command {
	var account string
	var deep deepFlag
	var opt worker.VerifyOptions
	c := a.withJSON(a.withConfig(&cobra.Command{
		Use:   "verify",
		Short: "Compare the mirror with the mailbox, through the quota guard; exit 1 if they differ",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("verify takes no argument %q; the sample's size is said as --deep=N", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Deep = int(deep)
			return a.withMirror(cmd.Context(), func(m *worker.Mirror) error {
				return a.verify(cmd.Context(), m, account, opt)
			})
		},
	}))
	c.Flags().StringVar(&account, "account", "", "one account, by id or address; default all")
	c.Flags().BoolVar(&opt.Labels, "labels", false, "list the messages of each label too, 5 units a 500")
	c.Flags().Var(&deep, "deep", "fetch and compare so many threads that look the same, chosen at random, 40 units each")
	c.Flags().Lookup("deep").NoOptDefVal = strconv.Itoa(deepDefault)
	c.Flags().BoolVar(&opt.Repair, "repair", false, "store what differs, and delete what Gmail says is gone")
	return c
}

// deepFlag is the size of a sample.
type deepFlag int

func (d *deepFlag) String() string { return strconv.Itoa(int(*d)) }

// Type is what the help calls the value.
func (d *deepFlag) Type() string { return "N" }

// Set takes a size.
func (d *deepFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return errors.New("want a number of threads, at least 1")
	}
	*d = deepFlag(n)
	return nil
}

func (a *app) verify(ctx context.Context, m *worker.Mirror, account string, opt worker.VerifyOptions) error {
	accounts, err := m.Accounts(ctx)
	if err != nil {
		return err
	}
	if account != "" {
		id, err := m.Resolve(ctx, account)
		if err != nil {
			return err
		}
		accounts = slices.DeleteFunc(accounts, func(s worker.AccountStatus) bool { return s.ID != id })
	}
	results := make([]worker.VerifyResult, 0, len(accounts))
	equal := true
	for _, acc := range accounts {
		r, err := m.Verify(ctx, acc.ID, a.verifyOptions(acc, opt))
		if err != nil {
			return errors.Join(fmt.Errorf("verify account %s: %w", acc.ID, err), a.printVerified(results))
		}
		results = append(results, r)
		equal = equal && r.Equal()
	}
	err = a.printVerified(results)
	if err == nil && !equal {
		err = errReported
	}
	return err
}

// verifyOptions leaves the repair of a mirror that is being filled to the run that does it.
func (a *app) verifyOptions(acc worker.AccountStatus, opt worker.VerifyOptions) worker.VerifyOptions {
	if acc.Live() {
		return opt
	}
	note := "its mirror is not complete yet"
	if opt.Repair && acc.State.Active() {
		opt.Repair = false
		note += ", and is completed by the worker only"
	}
	fmt.Fprintf(a.stderr, "gmailsync: account %s is %s: %s\n", acc.ID, acc.State, note)
	return opt
}

func (a *app) printVerified(results []worker.VerifyResult) error {
	if a.asJSON {
		return a.printJSON(results)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACCOUNT\tTHREADS\tFETCHED\tMISSING\tEXTRA\tDIFFERENT\tUNREADABLE\tIN FLIGHT\tREPAIRED")
	var all []worker.Difference
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
			r.Account, r.Threads, r.Fetched, r.Missing, r.Extra, r.Different, r.Unreadable, r.InFlight, r.Repaired)
		all = append(all, r.Differences...)
	}
	if len(all) > 0 {
		fmt.Fprintln(w, "\nTHREAD\tMESSAGE\tDIFFERENCE\t")
	}
	for _, d := range all[:min(len(all), printedLines)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.ThreadID, orDash(d.MessageID), d.Kind, becomes(d))
	}
	if len(all) > printedLines {
		fmt.Fprintf(w, "… and %d more, see --json\n", len(all)-printedLines)
	}
	return w.Flush()
}

// becomes says what a difference is about to be, or has become.
func becomes(d worker.Difference) string {
	switch {
	case d.InFlight:
		return "in flight"
	case d.Repaired:
		return "repaired"
	}
	return ""
}
