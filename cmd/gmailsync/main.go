// Command gmailsync mirrors Gmail mailboxes into SQL. It parses arguments and prints results; the work is done by the
// packages worker, configs and gmailsim. It must not know Gmail's API, SQL or Redis.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
