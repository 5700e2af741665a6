// Command gmailsync mirrors Gmail mailboxes into SQL. It parses arguments and prints results; the work is done by the
// packages worker, configs and gmailsim. It must not know Gmail's API, SQL, or what is in Redis.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silent{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// silent keeps the Redis client from writing lines of its own between ours: the worker says when Redis is away.
type silent struct{}

// Printf implements go-redis's logger.
func (silent) Printf(context.Context, string, ...any) {}
