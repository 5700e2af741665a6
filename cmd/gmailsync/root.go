package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gmailsync/gmailsync/configs"
)

// Exit codes of every subcommand.
const (
	exitDone   = 0
	exitFailed = 1 // the command ran and failed
	exitUsage  = 2 // wrong arguments or configuration; nothing was done
)

// app is what every subcommand shares: where results and logs go, and whether arguments were accepted.
type app struct {
	stdout, stderr io.Writer
	config         string // -c
	asJSON         bool   // --json
	accepted       bool   // the arguments are right; an error from here on is a failure, not wrong usage
}

// execute runs one command line and returns its exit code. Results go to stdout, logs and errors to stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(stderr, "gmailsync: "+strings.ReplaceAll(err.Error(), "\n", " "))
	}
	var wrong *configs.Error
	var usage usageError
	if !a.accepted || errors.As(err, &wrong) || errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// errReported ends a command with exit code 1 whose result already says what is wrong.
var errReported = errors.New("reported")

// usageError is a wrong argument that only the command itself could find.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "gmailsync",
		Short:         "Mirrors Gmail mailboxes into SQL, live, without ever running into Gmail's quota",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			err := c.ValidateRequiredFlags() // cobra looks after this function
			a.accepted = err == nil
			return err
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(a.demoCommand(), a.runCommand(), a.simCommand(), a.accountCommand(), a.statusCommand(),
		a.verifyCommand(), a.exportCommand(), a.quotaCommand(), a.dlqCommand())
	return root
}

// withConfig adds -c to a command that reads a configuration file.
func (a *app) withConfig(c *cobra.Command) *cobra.Command {
	c.Flags().StringVarP(&a.config, "config", "c", "", "configuration file (YAML); GMAILSYNC_… variables override it")
	return c
}

// withJSON adds --json to a command that prints a table.
func (a *app) withJSON(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.asJSON, "json", false, "print JSON instead of a table")
	return c
}

// load reads the configuration that -c names and builds the logger that it asks for.
func (a *app) load() (configs.Config, *zap.Logger, error) {
	cfg, err := configs.Load(a.config)
	if err != nil {
		return cfg, nil, err
	}
	log, err := a.logger(cfg.Log)
	if err != nil {
		return cfg, nil, err
	}
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	return cfg, log, nil
}

func (a *app) logger(cfg configs.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(cfg.Level)
	if err != nil {
		return nil, &configs.Error{Key: "log.level", Value: cfg.Level, Allowed: "debug, info, warn or error"}
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.Format != "json" {
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(a.stderr)), level)), nil
}
