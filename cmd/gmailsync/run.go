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

// tuneGC lets a worker's heap grow to five times what is in use before it is collected, but not beyond 200 MB: a worker
// keeps a few megabytes and much passes through; at Go's default an import took a seventh more CPU time. GOGC and
// GOMEMLIMIT win.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(200 << 20)
	}
}

func (a *app) run(ctx context.Context) error {
	tuneGC()
	cfg, log, err := a.load()
	if err != nil {
		return err
	}
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
