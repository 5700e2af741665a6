package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gmailsync/gmailsync/consumers"
)

const (
	// ackDeadline is the lease that the service gives before the client has asked for its own (see receive.go).
	ackDeadline = 60 * time.Second
	// Between two deliveries of a message that was given back. The upper bound is Pub/Sub's largest.
	minRetryBackoff = 10 * time.Second
	maxRetryBackoff = 600 * time.Second
)

func (b *Broker) topicPath(kind consumers.Kind) string {
	return fmt.Sprintf("projects/%s/topics/%s", b.cfg.Project, b.name(kind))
}

func (b *Broker) subscriptionPath(kind consumers.Kind) string {
	return fmt.Sprintf("projects/%s/subscriptions/%s", b.cfg.Project, b.name(kind))
}

// lost tells that an emulator has forgotten its topics and subscriptions: it was started anew.
func (b *Broker) lost(err error) bool {
	return b.cfg.Endpoint != "" && status.Code(err) == codes.NotFound
}

// create makes the topics and subscriptions of an emulator. Those that exist stay as they are.
func (b *Broker) create(ctx context.Context) error {
	for _, kind := range consumers.Kinds {
		_, err := b.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: b.topicPath(kind)})
		if err != nil && status.Code(err) != codes.AlreadyExists {
			return fmt.Errorf("broker: create topic %s: %w", b.topicPath(kind), err)
		}
		_, err = b.client.SubscriptionAdminClient.CreateSubscription(ctx, b.subscription(kind))
		if err != nil && status.Code(err) != codes.AlreadyExists {
			return fmt.Errorf("broker: create subscription %s: %w", b.subscriptionPath(kind), err)
		}
	}
	return nil
}

// subscription is a kind's subscription as it should be: it never expires, and what is given back comes back slowly.
func (b *Broker) subscription(kind consumers.Kind) *pubsubpb.Subscription {
	return &pubsubpb.Subscription{
		Name:               b.subscriptionPath(kind),
		Topic:              b.topicPath(kind),
		AckDeadlineSeconds: int32(ackDeadline / time.Second),
		ExpirationPolicy:   &pubsubpb.ExpirationPolicy{},
		RetryPolicy: &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(minRetryBackoff),
			MaximumBackoff: durationpb.New(maxRetryBackoff),
		},
	}
}

// check looks at every topic and subscription of Google's Pub/Sub, so that one start names all that is to be done.
func (b *Broker) check(ctx context.Context) error {
	var errs []error
	for _, kind := range consumers.Kinds {
		_, err := b.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: b.topicPath(kind)})
		errs = append(errs, b.lookupError("topic "+b.topicPath(kind), "pubsub.topics.get", err))

		s, err := b.client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{
			Subscription: b.subscriptionPath(kind),
		})
		if err != nil {
			errs = append(errs, b.lookupError("subscription "+b.subscriptionPath(kind), "pubsub.subscriptions.get", err))
			continue
		}
		errs = append(errs, b.checkSubscription(kind, s))
	}
	return errors.Join(errs...)
}

// lookupError is nil where the worker may use a resource that it may not look at: then it only says so.
func (b *Broker) lookupError(what, right string, err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.PermissionDenied:
		b.log.Warn("not checked: the right to look at it is missing", zap.String("what", what), zap.String("right", right))
		return nil
	case codes.NotFound:
		return fmt.Errorf("broker: %s does not exist: create it", what)
	}
	return fmt.Errorf("broker: look at %s: %w", what, err)
}

// checkSubscription refuses settings that lose messages, and warns of those that only cost.
func (b *Broker) checkSubscription(kind consumers.Kind, s *pubsubpb.Subscription) error {
	name := s.GetName()
	switch {
	case s.GetTopic() != b.topicPath(kind):
		return fmt.Errorf("broker: subscription %s is on topic %s, want %s", name, s.GetTopic(), b.topicPath(kind))
	case s.GetExpirationPolicy() == nil || s.GetExpirationPolicy().GetTtl().AsDuration() != 0:
		return fmt.Errorf("broker: subscription %s would be deleted when unused: set its expiration to never", name)
	case s.GetPushConfig().GetPushEndpoint() != "":
		return fmt.Errorf("broker: subscription %s is a push subscription: it must be pull", name)
	}
	if s.GetRetryPolicy() == nil {
		b.log.Warn("the subscription has no retry policy: what is given back returns at once", zap.String("subscription", name))
	}
	if s.GetDeadLetterPolicy() != nil {
		b.log.Warn("the subscription has a dead-letter policy: waiting for quota counts as an attempt there",
			zap.String("subscription", name))
	}
	return nil
}
