package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"go.uber.org/zap"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gmailsync/gmailsync/consumers"
)

// Embedded is the Config.Endpoint of a server inside the process. It starts empty and ends with the process.
const Embedded = "embedded"

const (
	// publishDelay gathers jobs that are published at the same moment into one request. Pub/Sub's default of 10 ms would
	// be most of the time that a job spends on its way.
	publishDelay = 2 * time.Millisecond
	// publishTimeout ends a publication that the service does not answer.
	publishTimeout = 30 * time.Second
	// openTimeout bounds the requests that check or create topics and subscriptions.
	openTimeout = 30 * time.Second
)

// Config says which Pub/Sub to use.
type Config struct {
	Endpoint    string // Embedded, host:port of an emulator (no TLS, no credentials), or empty for Google's
	Project     string // Google Cloud project id of topics and subscriptions
	Prefix      string // names are <prefix>-<kind>, the same for topic and subscription
	Outstanding int    // messages leased at once for one subscription; 0: 1000
}

// Broker is one connection to Pub/Sub. It implements consumers.Queue. Safe for concurrent use.
type Broker struct {
	cfg        Config
	log        *zap.Logger
	client     *pubsub.Client
	conn       *grpc.ClientConn // nil for Google's
	local      *local           // nil unless embedded
	held       leases           // unless embedded
	publishers map[consumers.Kind]*pubsub.Publisher
	closeOnce  sync.Once
	closeErr   error
}

// Open connects. Topics and subscriptions are created on an emulator and in the process; on Google's Pub/Sub they must
// exist and be fit for use (see checkSubscription), and the error names each one that is not.
func Open(ctx context.Context, cfg Config, log *zap.Logger) (*Broker, error) {
	if cfg.Project == "" || cfg.Prefix == "" {
		return nil, errors.New("broker: project and prefix are required")
	}
	if cfg.Outstanding <= 0 {
		cfg.Outstanding = pubsub.DefaultReceiveSettings.MaxOutstandingMessages
	}
	b := &Broker{cfg: cfg, log: log, publishers: map[consumers.Kind]*pubsub.Publisher{}}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := b.connect(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	for _, kind := range consumers.Kinds {
		b.publishers[kind] = b.newPublisher(kind)
	}
	return b, nil
}

func (b *Broker) connect(ctx context.Context) error {
	var opts []option.ClientOption
	if addr := b.cfg.Endpoint; addr != "" {
		if addr == Embedded {
			b.local = newLocal(b.log)
			addr = b.local.addr()
		}
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("broker: connect to %s: %w", addr, err)
		}
		b.conn = conn
		opts = append(opts, option.WithGRPCConn(conn))
	}
	client, err := pubsub.NewClient(ctx, b.cfg.Project, opts...)
	if err != nil {
		return fmt.Errorf("broker: open Pub/Sub of project %s: %w", b.cfg.Project, err)
	}
	b.client = client
	return nil
}

// prepare makes sure that topics and subscriptions are there.
func (b *Broker) prepare(ctx context.Context) error {
	if b.cfg.Endpoint != "" {
		return b.create(ctx)
	}
	return b.check(ctx)
}

func (b *Broker) newPublisher(kind consumers.Kind) *pubsub.Publisher {
	p := b.client.Publisher(b.name(kind))
	p.PublishSettings.DelayThreshold = publishDelay
	p.PublishSettings.Timeout = publishTimeout
	return p
}

// Publish sends the jobs and returns once the service has given each an id. On an error some may have been sent. An
// emulator that has lost its topics gets them again, and the jobs.
func (b *Broker) Publish(ctx context.Context, jobs ...consumers.Job) error {
	if b.local != nil {
		defer b.local.publishing()()
	}
	refused, err := b.publish(ctx, jobs)
	if !b.lost(err) {
		return err
	}
	if err := b.create(ctx); err != nil {
		return err
	}
	_, err = b.publish(ctx, refused)
	return err
}

// publish also returns the jobs that the service did not take.
func (b *Broker) publish(ctx context.Context, jobs []consumers.Job) (refused []consumers.Job, failed error) {
	results := make([]*pubsub.PublishResult, 0, len(jobs))
	for _, job := range jobs {
		p := b.publishers[job.Kind]
		if p == nil {
			return nil, fmt.Errorf("broker: publish a job of unknown kind %q", job.Kind)
		}
		data, err := job.Encode()
		if err != nil {
			return nil, fmt.Errorf("broker: encode a %s job: %w", job.Kind, err)
		}
		results = append(results, p.Publish(ctx, &pubsub.Message{Data: data}))
	}
	for i, r := range results {
		if _, err := r.Get(ctx); err != nil {
			refused = append(refused, jobs[i])
			if failed == nil {
				failed = fmt.Errorf("broker: publish a %s job: %w", jobs[i].Kind, err)
			}
		}
	}
	return refused, failed
}

// Close sends what is still being published and disconnects. End every Receive first. A second call does nothing.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() { b.closeErr = b.close() })
	return b.closeErr
}

func (b *Broker) close() error {
	for _, p := range b.publishers {
		p.Stop()
	}
	var errs []error
	if b.client != nil {
		errs = append(errs, b.client.Close())
	}
	if b.conn != nil && b.client == nil { // else the client has closed it
		errs = append(errs, b.conn.Close())
	}
	if b.local != nil {
		errs = append(errs, b.local.close())
	}
	return errors.Join(errs...)
}

// name is the id of a kind's topic and subscription.
func (b *Broker) name(kind consumers.Kind) string { return b.cfg.Prefix + "-" + string(kind) }
