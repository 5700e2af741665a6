package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/worker"
)

// stopGrace is how long a stopping worker lets running handlers end: one thread batch at the user's limit.
const stopGrace = 15 * time.Second

func (a *app) runCommand() *cobra.Command {
	return a.withConfig(&cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the worker until SIGINT or SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context())
		},
	})
}

// heapGoal is from where the garbage of large mail is collected sooner than usual, bytes. Beside it the process holds its
// code and SQLite's pages, some 60 MB.
const heapGoal = 160 << 20

// boundHeap sets the goal for processes that fetch mail, unless GOMEMLIMIT sets another. Below it the heap may grow to five
// times what is in use before it is collected, unless GOGC says otherwise: a worker keeps a few megabytes and much passes
// through; at Go's default an import took a seventh more CPU time.
func boundHeap() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(400)
	}
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(heapGoal)
	}
}

func (a *app) run(ctx context.Context) error {
	cfg, log, err := a.load()
	if err != nil {
		return err
	}
	boundHeap()
	w, err := worker.New(ctx, cfg, worker.WithLogger(log), worker.WithConfigFile(a.config))
	if err != nil {
		return err
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	return w.Stop(stopping)
}
