package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/worker"
)

func (a *app) accountCommand() *cobra.Command {
	account := &cobra.Command{
		Use:   "account",
		Short: "Add, list, remove and resync mirrored accounts; works beside a running worker",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("account: say add, list, remove or resync")}
		},
	}
	account.AddCommand(a.accountAdd(), a.accountList(), a.accountRemove(), a.accountResync())
	return account
}

func (a *app) accountAdd() *cobra.Command {
	var address, tokenFile string
	add := a.withConfig(&cobra.Command{
		Use:   "add --address A --refresh-token-file F",
		Short: "Mirror an account, or reconnect one whose grant was revoked",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := readToken(tokenFile)
			if err != nil {
				return usageError{err}
			}
			return a.withNewMirror(cmd.Context(), func(m *worker.Mirror) error {
				added, err := m.AddAccount(cmd.Context(), address, token)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "account %s: %s\n", added.ID, added.State)
				return nil
			})
		},
	})
	add.Flags().StringVar(&address, "address", "", "the mailbox's address")
	add.Flags().StringVar(&tokenFile, "refresh-token-file", "", "file that holds the OAuth refresh token, nothing else")
	for _, required := range []string{"address", "refresh-token-file"} {
		_ = add.MarkFlagRequired(required) // fails only for a flag that does not exist
	}
	return add
}

// readToken reads a refresh token; it comes from a file so that it never stands in a process list.
func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--refresh-token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("--refresh-token-file %s: want one refresh token and nothing else", path)
	}
	return token, nil
}

func (a *app) accountList() *cobra.Command {
	return a.onAccounts("list", "List the accounts and their states", a.printAccounts)
}

func (a *app) printAccounts(_ *worker.Mirror, accounts []worker.AccountStatus) error {
	if a.asJSON {
		return a.printJSON(accounts)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACCOUNT\tADDRESS\tSTATE\tTHREADS\tMESSAGES\tREASON")
	for _, s := range accounts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", s.ID, s.Address, s.State, s.Threads, s.Messages, s.Reason)
	}
	return w.Flush()
}

func (a *app) accountRemove() *cobra.Command {
	return a.onAccount("remove", "Stop mirroring an account and delete its mirror and its token",
		func(ctx context.Context, m *worker.Mirror, id string) error {
			if err := m.RemoveAccount(ctx, id); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "account %s: removed\n", id)
			return nil
		})
}

func (a *app) accountResync() *cobra.Command {
	return a.onAccount("resync", "Compare an account's whole mailbox with its mirror and fetch what differs",
		func(ctx context.Context, m *worker.Mirror, id string) error {
			started, err := m.ResyncAccount(ctx, id)
			if err != nil {
				return err
			}
			said := "resync started; `gmailsync status` shows its progress"
			if !started {
				said = "a sync run is under way already; nothing changed"
			}
			fmt.Fprintf(a.stdout, "account %s: %s\n", id, said)
			return nil
		})
}

// onAccounts is a command that prints all accounts.
func (a *app) onAccounts(use, short string, show func(*worker.Mirror, []worker.AccountStatus) error) *cobra.Command {
	return a.withJSON(a.withConfig(&cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMirror(cmd.Context(), func(m *worker.Mirror) error {
				accounts, err := m.Accounts(cmd.Context())
				if err != nil {
					return err
				}
				return show(m, accounts)
			})
		},
	}))
}

// onAccount is a command about one account, named by --account with its id or address.
func (a *app) onAccount(use, short string, do func(ctx context.Context, m *worker.Mirror, id string) error) *cobra.Command {
	var account string
	c := a.withConfig(&cobra.Command{
		Use:   use + " --account A",
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMirror(cmd.Context(), func(m *worker.Mirror) error {
				id, err := m.Resolve(cmd.Context(), account)
				if err != nil {
					return err
				}
				return do(cmd.Context(), m, id)
			})
		},
	})
	c.Flags().StringVar(&account, "account", "", "the account's id or address")
	_ = c.MarkFlagRequired("account") // fails only for a flag that does not exist
	return c
}

// withMirror opens the configured mirror for one command.
func (a *app) withMirror(ctx context.Context, do func(*worker.Mirror) error) error {
	return a.with(ctx, worker.OpenMirror, do)
}

// withNewMirror is withMirror for the command that may be the first.
func (a *app) withNewMirror(ctx context.Context, do func(*worker.Mirror) error) error {
	return a.with(ctx, worker.CreateMirror, do)
}

type opener func(context.Context, configs.Config, *zap.Logger) (*worker.Mirror, error)

func (a *app) with(ctx context.Context, open opener, do func(*worker.Mirror) error) (err error) {
	cfg, log, err := a.load()
	if err != nil {
		return err
	}
	m, err := open(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return do(m)
}
