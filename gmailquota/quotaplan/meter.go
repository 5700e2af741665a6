package quotaplan

import (
	"fmt"
	"time"
)

// Meter is one way in which a provider may count units against a limit of a minute. Times are since any common start
// and must not decrease from call to call.
type Meter interface {
	// Charge counts a call that arrives at the given time, or refuses it and counts nothing.
	Charge(at time.Duration, units int64) bool
	String() string
}

// FixedMinute counts from minute to minute; its minutes begin at Phase.
type FixedMinute struct {
	Limit  int64
	Phase  time.Duration
	minute int64
	used   int64
}

// Charge implements Meter.
func (m *FixedMinute) Charge(at time.Duration, units int64) bool {
	if minute := int64((at + time.Minute - m.Phase) / time.Minute); minute != m.minute {
		m.minute, m.used = minute, 0
	}
	if m.used+units > m.Limit {
		return false
	}
	m.used += units
	return true
}

func (m *FixedMinute) String() string { return fmt.Sprintf("fixed minute at %v", m.Phase) }

// SlidingMinute counts the last 60 seconds, exactly.
type SlidingMinute struct {
	Limit int64
	calls []arrival // of the last minute
	used  int64
	most  int64
}

type arrival struct {
	at    time.Duration
	units int64
}

// Charge implements Meter.
func (m *SlidingMinute) Charge(at time.Duration, units int64) bool {
	for len(m.calls) > 0 && m.calls[0].at <= at-time.Minute {
		m.used -= m.calls[0].units
		m.calls = m.calls[1:]
	}
	if m.used+units > m.Limit {
		return false
	}
	m.calls = append(m.calls, arrival{at, units})
	m.used += units
	m.most = max(m.most, m.used)
	return true
}

// Most is the largest sum of any 60 seconds so far.
func (m *SlidingMinute) Most() int64 { return m.most }

func (m *SlidingMinute) String() string { return "sliding minute" }

// TokenBucket is a provider's own bucket: it holds Capacity and refills with Limit a minute, in whole steps of a second.
type TokenBucket struct {
	Limit, Capacity int64
	second          int64
	tokens          int64 // in 1/60 units, so that a second's refill is whole
	started         bool
}

// Charge implements Meter.
func (m *TokenBucket) Charge(at time.Duration, units int64) bool {
	second := int64(at / time.Second)
	if !m.started {
		m.started, m.second, m.tokens = true, second, m.Capacity*60
	}
	m.tokens = min(m.Capacity*60, m.tokens+(second-m.second)*m.Limit)
	m.second = second
	if m.tokens < units*60 {
		return false
	}
	m.tokens -= units * 60
	return true
}

func (m *TokenBucket) String() string { return fmt.Sprintf("bucket of %d", m.Capacity) }

// Meters returns the models for a limit: fixed minutes at several phases, the sliding minute, and buckets that hold a
// minute's and a tenth of a minute's units.
func Meters(limit int64) []Meter {
	out := []Meter{&SlidingMinute{Limit: limit}, &TokenBucket{Limit: limit, Capacity: limit}, &TokenBucket{Limit: limit, Capacity: limit / 10}}
	for phase := time.Duration(0); phase < time.Minute; phase += 7 * time.Second {
		out = append(out, &FixedMinute{Limit: limit, Phase: phase})
	}
	return out
}
