package quotaplan_test

import (
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/quotaplan"
)

type arrival struct {
	second float64
	units  int64
	passes bool
}

// The models judge the guard, so they are held to arrivals worked out by hand.
func TestMetersCountTheirMinutes(t *testing.T) {
	for _, tt := range []struct {
		meter    quotaplan.Meter
		arrivals []arrival
	}{
		{&quotaplan.FixedMinute{Limit: 100}, []arrival{{0, 100, true}, {59.9, 1, false}, {60, 100, true}, {119, 1, false}, {600, 100, true}}},
		{&quotaplan.FixedMinute{Limit: 100, Phase: 7 * time.Second}, []arrival{{6.9, 100, true}, {7, 100, true}, {66.9, 1, false}, {67, 1, true}}},
		{&quotaplan.SlidingMinute{Limit: 100}, []arrival{{0, 60, true}, {30, 40, true}, {59.9, 1, false}, {60, 61, false}, {60, 60, true}, {89, 1, false}, {90, 40, true}}},
		{&quotaplan.TokenBucket{Limit: 60, Capacity: 10}, []arrival{{0.5, 10, true}, {0.9, 1, false}, {1, 2, false}, {1, 1, true}, {100, 11, false}, {100, 10, true}}},
	} {
		for _, a := range tt.arrivals {
			at := time.Duration(a.second * float64(time.Second))
			if got := tt.meter.Charge(at, a.units); got != a.passes {
				t.Errorf("%v: %d units at %v: %v; want %v", tt.meter, a.units, at, got, a.passes)
			}
		}
	}
	m := &quotaplan.SlidingMinute{Limit: 100}
	for _, s := range []int{0, 10, 65} {
		m.Charge(time.Duration(s)*time.Second, 40)
	}
	if m.Most() != 80 {
		t.Errorf("the largest minute had %d; want 80", m.Most())
	}
}
