//go:build !race

package gmailquota

import "testing"

// A decision of the core allocates nothing: an admission, a denial that gives a place, and a replay.
func TestADecisionAllocatesNothing(t *testing.T) {
	p, err := DefaultConfig().plan()
	if err != nil {
		t.Fatal(err)
	}
	l := p.limits()
	first := int64(1_800_000_000_000_000)
	ids := make([]string, 4000)
	for i := range ids {
		ids[i] = newID()
	}
	for _, test := range []struct {
		name  string
		pause int64 // µs between two calls
		same  bool
		code  int64
	}{
		{"admission", 1_000_000, false, admitted},
		{"denial", 0, false, deniedUser},
		{"replay", 0, true, admitted},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := first
			project := newProject(now-2*youngUS, l)
			user := newUser(now, &project, l)
			user.records = make([]record, 0, localRecords)
			i := 0
			decideNext := func() decision {
				c := charge{id: ids[i], calls: 1, class: Realtime, patience: patienceUS}
				c.price(p.prices["threads.get"], p.user, p.project, p.shares)
				c.horizons(0, -1, l.longest, p.user.cap)
				user.settle(now, l)
				project.settle(now, l)
				project.seen(&user, now)
				d := decide(&user, &project, now, l, c)
				if user.release(c.id); !test.same {
					i++
				}
				now += test.pause
				return d
			}
			for range 3 { // the bucket is empty
				decideNext()
			}
			var last decision
			if n := testing.AllocsPerRun(1000, func() { last = decideNext() }); n != 0 || last.code != test.code {
				t.Errorf("%v allocations, code %d; want 0 and %d", n, last.code, test.code)
			}
		})
	}
}
