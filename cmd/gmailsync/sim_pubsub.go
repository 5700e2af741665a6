package main

import (
	"context"
	"fmt"
	"net"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// simPubSub is an in-process Pub/Sub that other processes can use. Gmail's notifications are published to the topic
// that a watch names, as the real Gmail does.
type simPubSub struct {
	server *pstest.Server
}

func startSimPubSub(ctx context.Context, addr string) (*simPubSub, error) {
	// pstest panics where it cannot listen, so look first.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--pubsub: %w", err)
	}
	addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("--pubsub: %w", err)
	}
	return &simPubSub{server: pstest.NewServerWithAddress(addr)}, nil
}

// publish sends one notification, making the topic if it does not exist.
func (p *simPubSub) publish(ctx context.Context, topic string, data []byte) error {
	req := &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: data}}}
	_, err := p.server.GServer.Publish(ctx, req)
	if status.Code(err) != codes.NotFound {
		return err
	}
	_, err = p.server.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: topic})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return err
	}
	_, err = p.server.GServer.Publish(ctx, req)
	return err
}

func (p *simPubSub) close() error { return p.server.Close() }
