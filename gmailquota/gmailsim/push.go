package gmailsim

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	notifyEvery   = time.Second // Gmail sends at most one notification a second for a user
	firstRetry    = 100 * time.Millisecond
	lastRetry     = time.Minute // Pub/Sub's push backoff goes from 0.1 s to 60 s
	giveUpAfter   = 20          // attempts, some 12 minutes: less than Pub/Sub's week, so that memory stays bounded
	maxPushes     = 200         // of one account under way at a time; more are lost, as notifications may be
	pushTimeout   = 10 * time.Second
	tokenLifetime = time.Hour
)

// notification is what Gmail publishes on the topic, once for each change or for several.
type notification struct {
	topic string
	id    string // of the Pub/Sub message
	at    time.Time
	data  []byte
}

// startSender makes sure that a mailbox's pending notification goes out. The caller holds the mailbox's mu.
func (s *Server) startSender(b *mailbox) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b.watch.sending || s.ctx.Err() != nil {
		return
	}
	b.watch.sending = true
	s.senders.Go(func() { s.sendPending(b) })
}

// sendPending sends notifications as long as there are changes, one a second.
func (s *Server) sendPending(b *mailbox) {
	for {
		n, ok := s.nextNotification(b)
		if !ok {
			return
		}
		for _, target := range s.cfg.Push {
			s.start(b, func(ctx context.Context) error { return s.post(ctx, target, n) })
		}
		if s.cfg.Publish != nil {
			s.start(b, func(ctx context.Context) error { return s.cfg.Publish(ctx, n.topic, n.data) })
		}
		pause(s.ctx, notifyEvery)
	}
}

func (s *Server) nextNotification(b *mailbox) (notification, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.watch.pending || s.ctx.Err() != nil {
		b.watch.sending = false
		return notification{}, false
	}
	b.watch.pending = false
	return notification{
		topic: b.watch.topic,
		id:    strconv.FormatUint(1e16+s.nonce.Add(1), 10),
		at:    s.cfg.Now(),
		data:  fmt.Appendf(nil, `{"emailAddress":%s,"historyId":%d}`, appendJSON(nil, b.address), b.historyID),
	}, true
}

// start delivers one notification in a goroutine of its own, with retries.
func (s *Server) start(b *mailbox, deliver func(context.Context) error) {
	if !b.count(func(p *Pushes) bool { p.InFlight++; return p.InFlight <= maxPushes }) {
		b.count(func(p *Pushes) bool { p.InFlight--; p.Dropped++; return true })
		return
	}
	s.senders.Go(func() {
		wait := firstRetry
		for range giveUpAfter {
			ctx, cancel := context.WithTimeout(s.ctx, pushTimeout)
			err := deliver(ctx)
			cancel()
			if err == nil {
				b.count(func(p *Pushes) bool { p.InFlight--; p.Sent++; return true })
				return
			}
			b.count(func(p *Pushes) bool { p.Retried++; return true })
			pause(s.ctx, wait)
			wait = min(2*wait, lastRetry)
			if s.ctx.Err() != nil {
				break
			}
		}
		b.count(func(p *Pushes) bool { p.InFlight--; p.Dropped++; return true })
	})
}

func (b *mailbox) count(change func(*Pushes) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return change(&b.watch.counts)
}

func (b *mailbox) pushes() Pushes {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watch.counts
}

// subscription is the name that push deliveries carry.
const subscription = "projects/gmailsim/subscriptions/gmail-push"

// post makes one push delivery. 102, 200, 201, 202 and 204 acknowledge.
func (s *Server) post(ctx context.Context, target PushTarget, n notification) error {
	body := n.data
	published := n.at.UTC().Format(time.RFC3339Nano)
	if !target.Unwrapped {
		body = appendJSON(nil, map[string]any{
			"message": map[string]any{
				"data": base64.StdEncoding.EncodeToString(n.data), "messageId": n.id, "message_id": n.id,
				"publishTime": published, "publish_time": published, "attributes": map[string]string{},
			},
			"subscription": subscription,
		})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.pushToken(target))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "CloudPubSub-Google")
	if target.Unwrapped {
		req.Header.Set("X-Goog-Pubsub-Subscription-Name", subscription)
		req.Header.Set("X-Goog-Pubsub-Message-Id", n.id)
		req.Header.Set("X-Goog-Pubsub-Publish-Time", published)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return nil
	}
	return fmt.Errorf("push endpoint answered %s", resp.Status)
}

// pushToken signs what Pub/Sub sends along: who calls (email) and for whom (aud).
func (s *Server) pushToken(target PushTarget) string {
	audience, email := target.Audience, target.ServiceAccount
	if audience == "" {
		audience = target.URL
	}
	if email == "" {
		email = DefaultServiceAccount
	}
	now := s.cfg.Now()
	return processKey().sign(map[string]any{
		"iss": issuer, "aud": audience, "azp": subject(email), "sub": subject(email), "email": email, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(tokenLifetime).Unix(),
	})
}
