package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker"
)

const (
	// demoMessages is the size of a built-in mailbox: about 180 threads, which the limits of a new Google project (6,000
	// units a minute for a user, 40 for a thread) let through in little more than a minute.
	demoMessages = 420
	// demoInFlight is the ceiling that users of Gmail report; Google documents none.
	demoInFlight = 50
	// demoRefresh is how often the screen and the end of the import are looked at.
	demoRefresh = 200 * time.Millisecond

	demoAudience = "https://gmailsync.example/push"
	demoSender   = "gmail-push@gmailsync-demo.iam.gserviceaccount.com"
)

type demoOptions struct {
	mail         []string
	accounts     int
	userLimit    int64
	projectLimit int64
	burst        int64
	metering     string
	data         string
	once         bool
	report       string
	logLevel     string
}

func (a *app) demoCommand() *cobra.Command {
	o := demoOptions{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Mirror simulated mailboxes, everything in this process; needs nothing but this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.demo(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.mail, "mail", nil, "an .mbox, an .eml or a folder of them, instead of the built-in sample (repeatable)")
	f.IntVar(&o.accounts, "accounts", 3, "number of mailboxes, each with all of the mail")
	f.Int64Var(&o.userLimit, "user-limit", 6000, "Gmail's limit for a user, quota units a minute")
	f.Int64Var(&o.projectLimit, "project-limit", 1_200_000, "Gmail's limit for the project, quota units a minute")
	f.Int64Var(&o.burst, "burst", 100, "units that the guard lets a user spend at once; 100 at least")
	f.StringVar(&o.metering, "metering", "sliding", "how the simulated Gmail measures a minute: fixed, sliding or bucket")
	f.StringVar(&o.data, "data", "", "keep the database in this folder; default: a temporary one")
	f.BoolVar(&o.once, "once", false, "end when the mirror is complete and compared")
	f.StringVar(&o.report, "report", "", "write the figures to this file as JSON")
	f.StringVar(&o.logLevel, "log-level", "error", "what the worker logs to stderr: debug, info, warn or error")
	return c
}

// demo is one run: a simulated Gmail, a worker, and what is watched of both.
type demo struct {
	options  demoOptions
	started  time.Time
	sim      *gmailsim.Server
	worker   *worker.Worker
	accounts []*demoAccount
	watch    *stopwatch
	screen   screen
}

// demoAccount is one mailbox of the demo.
type demoAccount struct {
	id   string
	name string
	mailbox
	limit  int64
	begun  time.Time // its import
	ended  time.Time
	units  int64 // used by its import
	status worker.AccountStatus

	toCompare atomic.Int64 // messages of the comparison under way; 0: none is
	compared  atomic.Int64
}

func (a *app) demo(ctx context.Context, o demoOptions) error {
	if o.accounts < 1 {
		return usageError{fmt.Errorf("--accounts %d: want 1 or more", o.accounts)}
	}
	log, err := a.logger(configs.Log{Level: o.logLevel, Format: "console"})
	if err != nil {
		return err
	}
	if o.report != "" {
		if err := (report{}).write(o.report); err != nil { // a minute later would be too late to find out
			return usageError{err}
		}
	}
	d := &demo{options: o, started: time.Now()}
	d.watch = newStopwatch(func(account string, c change, took time.Duration) {
		d.screen.line("%s  %-10s  in the mirror after %.2f s", d.nameOf(account), c.what, took.Seconds())
	})
	return d.run(ctx, a, log)
}

// run sets everything up in the order of dependence and takes it down in the reverse order.
func (d *demo) run(ctx context.Context, a *app, log *zap.Logger) (err error) {
	push, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer push.Close() // the worker closes it as well
	d.sim, err = gmailsim.New(gmailsim.Config{
		PriceList: "2026-05", UserLimit: d.options.userLimit, ProjectLimit: d.options.projectLimit,
		Metering: d.options.metering, InFlight: demoInFlight,
		Push: []gmailsim.PushTarget{{URL: "http://" + push.Addr().String() + "/push", Audience: demoAudience, ServiceAccount: demoSender}},
	})
	if err != nil {
		return usageError{err}
	}
	defer d.sim.Close()
	if err := d.fill(); err != nil {
		return err
	}
	gmail, err := serve(ctx, "127.0.0.1:0", d.sim.Handler())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gmail.close()) }()

	cfg, cleanup, err := d.config(gmail.url, push.Addr().String())
	if err != nil {
		return err
	}
	defer cleanup()
	d.worker, err = worker.New(ctx, cfg, worker.WithLogger(log), worker.WithPushListener(push),
		worker.WithObserver(func(account string, cursor uint64) {
			d.watch.passed(account, cursor, time.Now())
		}))
	if err != nil {
		return err
	}
	d.screen = d.newScreen(a)
	defer d.screen.close()
	if err := d.worker.Start(ctx); err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		err = errors.Join(err, d.worker.Stop(stopping))
	}()
	return d.play(ctx)
}

// fill connects the mailboxes and puts their past into them.
func (d *demo) fill() error {
	boxes, err := fillMailboxes(d.sim, d.options.accounts, d.options.mail, demoMessages, 1)
	if err != nil {
		return err
	}
	for i, box := range boxes {
		d.accounts = append(d.accounts, &demoAccount{
			name: fmt.Sprintf("mailbox %d", i+1), mailbox: box, limit: d.options.userLimit,
		})
	}
	return nil
}

// config is the worker's configuration: the defaults, everything embedded, against the simulated Gmail.
func (d *demo) config(gmailURL, pushAddr string) (cfg configs.Config, cleanup func(), err error) {
	dir, cleanup := d.options.data, func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "gmailsync-demo-"); err != nil {
			return cfg, nil, err
		}
		cleanup = func() { _ = os.RemoveAll(dir) } // nothing to do about a temporary folder that stays
	} else if err = os.MkdirAll(dir, 0o700); err != nil {
		return cfg, nil, fmt.Errorf("--data: %w", err)
	}
	cfg = configs.Default()
	cfg.Gmail.Endpoint, cfg.Gmail.TokenURL = gmailURL+"/", gmailURL+"/token"
	cfg.Gmail.ClientID = "demo"
	cfg.PubSub.Topic = "projects/gmailsync-demo/topics/gmail"
	cfg.Push = configs.Push{Listen: pushAddr, Audience: demoAudience, ServiceAccount: demoSender, CertsURL: gmailURL + "/certs"}
	cfg.Store.Path = filepath.Join(dir, "gmailsync.db")
	cfg.Store.KeyFile = cfg.Store.Path + ".key"
	cfg.Guard.UserLimit, cfg.Guard.ProjectLimit, cfg.Guard.UserBurst = d.options.userLimit, d.options.projectLimit, d.options.burst
	if err := cfg.Validate(); err != nil {
		cleanup()
		return cfg, nil, err
	}
	return cfg, cleanup, nil
}

func (d *demo) newScreen(a *app) screen {
	names := make([]string, len(d.accounts))
	for i, acc := range d.accounts {
		names[i] = acc.name
	}
	if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return newBarScreen(f, columns, names)
		}
	}
	return &plainScreen{out: a.stdout}
}

func (d *demo) nameOf(account string) string {
	for _, acc := range d.accounts {
		if acc.id == account {
			return acc.name
		}
	}
	return "mailbox ?"
}

// play connects the accounts, lets the mailboxes live while they are imported, compares, and goes on until ctx ends.
func (d *demo) play(ctx context.Context) error {
	d.screen.line("Simulated Gmail: %d mailboxes of %d messages, %d units a minute each (%s metering).",
		len(d.accounts), len(d.accounts[0].past), d.options.userLimit, d.options.metering)
	for _, acc := range d.accounts {
		added, err := d.worker.Mirror().AddAccount(ctx, acc.account.Address, acc.account.RefreshToken)
		if err != nil {
			return err
		}
		acc.id = added.ID
	}
	living, stopLife := context.WithCancel(ctx)
	defer stopLife()
	lives, living := errgroup.WithContext(living)
	err := d.importAll(ctx, living, lives)
	stopLife()
	if err := errors.Join(err, lives.Wait()); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	verified, err := d.verify(ctx)
	if err != nil {
		return err
	}
	r := d.sumUp(verified)
	d.printSummary(r)
	if d.options.report != "" {
		if err := r.write(d.options.report); err != nil {
			return err
		}
	}
	if !d.options.once {
		if err := d.live(ctx); err != nil {
			return err
		}
	}
	if !verified.equal() || r.Gmail.Refused > 0 {
		return errReported
	}
	return nil
}

// importAll waits until every account is live; each mailbox starts to change once its import lists threads.
func (d *demo) importAll(ctx, living context.Context, lives *errgroup.Group) error {
	tick := time.NewTicker(demoRefresh)
	defer tick.Stop()
	for {
		if err := d.refresh(ctx); err != nil {
			return err
		}
		done := true
		for i, acc := range d.accounts {
			switch {
			case !acc.status.State.Active():
				return fmt.Errorf("%s stopped: %s %s", acc.name, acc.status.State, acc.status.Reason)
			case acc.begun.IsZero() && acc.status.Run.Listed > 0:
				acc.begun = time.Now()
				acc.units = -d.unitsOf(acc)
				d.startLife(living, lives, i, lifePause)
			case acc.ended.IsZero() && acc.status.Live():
				acc.ended = time.Now()
				acc.units += d.unitsOf(acc)
			}
			done = done && acc.status.Live()
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (d *demo) startLife(living context.Context, lives *errgroup.Group, i int, pause time.Duration) {
	acc := d.accounts[i]
	l := &life{
		sim: d.sim, address: acc.account.Address, pause: pause, old: acc.past,
		mail:    gmailsim.SampleMail(200, 1000+uint64(i)),
		rand:    rand.New(rand.NewPCG(uint64(i), 7)),
		changed: func(c change) { d.watch.start(acc.id, c) },
	}
	lives.Go(func() error { return l.run(living) })
}

// settle waits until every change that was made is stored.
func (d *demo) settle(ctx context.Context) error {
	tick := time.NewTicker(demoRefresh)
	defer tick.Stop()
	for d.watch.open() > 0 {
		if err := d.refresh(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return d.refresh(ctx)
}

// live lets the mailboxes go on changing until the user has seen enough.
func (d *demo) live(ctx context.Context) error {
	d.screen.line("Live: mail goes on arriving, more slowly now, and is mirrored as it comes. Ctrl-C ends.")
	lives, living := errgroup.WithContext(ctx)
	for i := range d.accounts {
		d.startLife(living, lives, i, slowPause)
	}
	tick := time.NewTicker(demoRefresh)
	defer tick.Stop()
	for {
		select {
		case <-living.Done():
			return lives.Wait()
		case <-tick.C:
			if err := d.refresh(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// refresh reads the accounts' states and shows them.
func (d *demo) refresh(ctx context.Context) error {
	all, err := d.worker.Mirror().Accounts(ctx)
	if err != nil {
		return err
	}
	byID := map[string]worker.AccountStatus{}
	for _, s := range all {
		byID[s.ID] = s
	}
	activity, meter := d.worker.Activity(), d.sim.Stats().Accounts
	views := make([]accountView, len(d.accounts))
	for i, acc := range d.accounts {
		acc.status = byID[acc.id]
		took, ok := d.watch.latest(acc.id)
		act := activity[acc.id]
		views[i] = accountView{
			name: acc.name, state: string(acc.status.State), limit: acc.limit,
			stored: acc.status.Run.Stored + acc.status.Run.Gone, listed: acc.status.Run.Listed,
			units: meter[acc.account.Address].Units60s, waiting: act.Waiting, longest: act.Longest,
			pushToStored: took, hasPush: ok, compared: acc.compared.Load(), toCompare: acc.toCompare.Load(),
		}
	}
	d.screen.show(views)
	return nil
}

// unitsOf is what the simulator has charged an account.
func (d *demo) unitsOf(acc *demoAccount) int64 {
	return d.sim.Stats().Accounts[acc.account.Address].Units
}
