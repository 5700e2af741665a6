package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

// simReady is the line that `gmailsync sim` prints once it listens.
type simReady struct {
	Endpoint string             `json:"endpoint"`
	TokenURL string             `json:"token_url"`
	CertsURL string             `json:"certs_url"`
	PubSub   string             `json:"pubsub,omitempty"`
	Accounts []gmailsim.Account `json:"accounts"`
}

type simOptions struct {
	listen   string
	pubsub   string
	accounts int
	messages int
	seed     uint64
	mail     []string
	push     []string
	audience string
	sender   string
	gmail    gmailsim.Config
}

func (a *app) simCommand() *cobra.Command {
	o := simOptions{}
	c := &cobra.Command{
		Use:   "sim --listen ADDR",
		Short: "Run the simulated Gmail alone, for this or any other program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.sim(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8025", "host:port to serve Gmail, the token endpoint and /_sim/ on")
	f.StringVar(&o.pubsub, "pubsub", "", "host:port to serve Pub/Sub on as well (in-process pstest); default none")
	f.IntVar(&o.accounts, "accounts", 2, "number of mailboxes")
	f.IntVar(&o.messages, "messages", 500, "messages of built-in sample mail in each mailbox")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the sample mail")
	f.StringArrayVar(&o.mail, "mail", nil, "an .mbox, an .eml or a folder of them, instead of the sample (repeatable)")
	f.StringArrayVar(&o.push, "push", nil, "URL that notifications are posted to, signed like Google's (repeatable)")
	f.StringVar(&o.audience, "push-audience", "gmailsync", "aud of the push tokens")
	f.StringVar(&o.sender, "push-service-account", "push@gmailsync.iam.gserviceaccount.com", "email of the push tokens")
	f.StringVar(&o.gmail.PriceList, "prices", "2026-05", "price list: 2026-05 or legacy")
	f.Int64Var(&o.gmail.UserLimit, "user-limit", 6000, "quota units a minute for a user, 0 = no limit")
	f.Int64Var(&o.gmail.ProjectLimit, "project-limit", 1_200_000, "quota units a minute for the project, 0 = no limit")
	f.StringVar(&o.gmail.Metering, "metering", "sliding", "how a minute is measured: fixed, sliding or bucket")
	f.IntVar(&o.gmail.InFlight, "in-flight", 50, "calls of one user under way at once, 0 = no ceiling")
	f.DurationVar(&o.gmail.Latency, "latency", 0, "added to every call")
	f.DurationVar(&o.gmail.TokenTTL, "token-ttl", time.Hour, "life of an access token")
	return c
}

func (a *app) sim(ctx context.Context, o simOptions) (err error) {
	if o.accounts < 0 || o.messages < 0 {
		return usageError{fmt.Errorf("--accounts %d --messages %d: want 0 or more", o.accounts, o.messages)}
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return usageError{fmt.Errorf("--listen %s: want host:port, as 127.0.0.1:8025", o.listen)}
	}
	for _, target := range o.push {
		u, err := url.Parse(target)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return usageError{fmt.Errorf("--push %s: want a URL, as http://127.0.0.1:8080/push", target)}
		}
		o.gmail.Push = append(o.gmail.Push, gmailsim.PushTarget{URL: target, Audience: o.audience, ServiceAccount: o.sender})
	}
	var pubsub *simPubSub
	if o.pubsub != "" {
		if pubsub, err = startSimPubSub(ctx, o.pubsub); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pubsub.close()) }()
		o.gmail.Publish = pubsub.publish
	}
	sim, err := gmailsim.New(o.gmail)
	if err != nil {
		return usageError{err}
	}
	defer sim.Close()
	if _, err := fillMailboxes(sim, o.accounts, o.mail, o.messages, o.seed); err != nil {
		return err
	}
	served, err := serve(ctx, o.listen, sim.Handler())
	if err != nil {
		return err
	}
	ready := simReady{
		Endpoint: served.url + "/", TokenURL: served.url + "/token", CertsURL: served.url + "/certs", Accounts: sim.Accounts(),
	}
	if pubsub != nil {
		ready.PubSub = pubsub.server.Addr
	}
	if err := json.NewEncoder(a.stdout).Encode(ready); err != nil {
		return err
	}
	<-ctx.Done()
	return served.close()
}

// mailbox is one simulated account and its past, oldest first.
type mailbox struct {
	account gmailsim.Account
	past    []gmailsim.MessageRef
}

// fillMailboxes connects n accounts and loads the mail of paths, or sample mail where there are none, into each.
func fillMailboxes(sim *gmailsim.Server, n int, paths []string, sample int, seed uint64) ([]mailbox, error) {
	var mail [][]byte
	if len(paths) > 0 {
		var err error
		if mail, err = gmailsim.ReadMail(paths...); err != nil {
			return nil, usageError{fmt.Errorf("--mail: %w", err)}
		}
	}
	boxes := make([]mailbox, n)
	for i := range boxes {
		if len(paths) == 0 {
			mail = gmailsim.SampleMail(sample, seed+uint64(i))
		}
		boxes[i].account = sim.AddAccount(fmt.Sprintf("user%d@example.com", i+1))
		for k, raw := range mail {
			ref, err := sim.Load(boxes[i].account.Address, raw)
			if err != nil {
				return nil, fmt.Errorf("message %d of %d: %w", k+1, len(mail), err)
			}
			boxes[i].past = append(boxes[i].past, ref)
		}
	}
	return boxes, nil
}

// served is an HTTP server on its own listener.
type served struct {
	url    string
	server *http.Server
	done   chan error
}

func serve(ctx context.Context, addr string, h http.Handler) (*served, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	s := &served{
		url:    "http://" + l.Addr().String(),
		server: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan error, 1),
	}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

func (s *served) close() error {
	err := s.server.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
