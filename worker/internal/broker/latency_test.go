package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// BenchmarkPublishToDelivery is how long a job is on its way through the server in the process, one at a time: 10 ms of it
// is the interval at which that server hands out.
func BenchmarkPublishToDelivery(b *testing.B) {
	q := embedded(b)
	ch, _ := receive(b, q, consumers.History)
	var worst time.Duration
	for i := 0; b.Loop(); i++ {
		sent := time.Now()
		if err := q.Publish(b.Context(), consumers.Job{Kind: consumers.History, Account: fmt.Sprint(i)}); err != nil {
			b.Fatal(err)
		}
		next(b, ch).ack()
		worst = max(worst, time.Since(sent))
	}
	b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
}
