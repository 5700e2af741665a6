package gmailquota

import "testing"

// What decisions that were under way together say and are answered, and what is known after it. The births are those of
// the project's states, one lost after the other.
func TestWhatIsKnownOfABucket(t *testing.T) {
	const first, second, third = 100, 200, 300 // births
	type k = known
	type h = heard
	for name, c := range map[string]struct {
		known        known
		asked        int64
		said, answer heard
		want         known
	}{
		"the first answer": {k{}, 0, h{}, h{first, 50}, k{heard: h{first, 50}}},
		"another answer":   {k{heard: h{first, 50}}, first, h{first, 50}, h{first, 60}, k{heard: h{first, 60}}},
		"two together":     {k{heard: h{first, 70}}, first, h{first, 50}, h{first, 60}, k{heard: h{first, 70}}},
		"a denial":         {k{heard: h{first, 70}}, first, h{first, 70}, h{first, 0}, k{heard: h{first, 70}}},
		"swept meanwhile":  {k{}, first, h{first, 50}, h{first, 60}, k{heard: h{first, 60}}},
		"the new state was told all": {
			k{heard: h{first, 50}}, first, h{first, 50}, h{second, 80}, k{heard: h{second, 80}}},
		"a denial by the new state, which was told all": {
			k{heard: h{first, 50}}, first, h{first, 50}, h{second, 0}, k{heard: h{second, 50}}},
		"the new state was not told what others had charged": {
			k{heard: h{first, 70}}, first, h{first, 50}, h{second, 80}, k{h{second, 80}, h{first, 70}}},
		"nor was it by another, asked before": {
			k{h{second, 80}, h{first, 70}}, first, h{first, 60}, h{second, 90}, k{h{second, 90}, h{first, 70}}},
		"but by the next": {
			k{h{second, 95}, h{first, 70}}, second, h{first, 70}, h{second, 90}, k{heard: h{second, 95}}},
		"a late answer of the lost state": {
			k{heard: h{second, 80}}, first, h{first, 50}, h{first, 70}, k{h{second, 80}, h{first, 70}}},
		"lost again before it was told": {
			k{h{second, 80}, h{first, 70}}, second, h{first, 70}, h{third, 75}, k{h{third, 75}, h{second, 80}}},
		"lost by a Redis whose clock is behind": {
			k{heard: h{second, 50}}, second, h{second, 50}, h{first, 60}, k{heard: h{first, 60}}},
		"a debt of the local buckets": {
			k{heard: h{first, 50}}, first, h{localBorn, 90}, h{first, 95}, k{heard: h{first, 95}}},
		"the same, and a denial": {
			k{heard: h{first, 50}}, first, h{localBorn, 90}, h{first, 0}, k{heard: h{first, 90}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.known.with(c.asked, c.said, c.answer); got != c.want {
				t.Errorf("known %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestALostStateIsToldUntilItsDebtIsOver(t *testing.T) {
	k := known{heard{2, 90}, heard{1, 70}}
	if got := k.tell(69); got != k.lost {
		t.Errorf("told %+v", got)
	}
	if got := k.tell(70); got != k.heard {
		t.Errorf("told %+v when that was over", got)
	}
}

// A bucket that has refilled is forgotten, also while a decision on it is under way: nothing was lost.
func TestASweepLosesNothing(t *testing.T) {
	m := memory{reach: [2]int64{1e9, 1e9}}
	learn := func(account string, now int64, asked [2]known, full int64) {
		m.learn(account, now, asked, [2]heard{asked[0].heard, asked[1].heard}, [2]heard{{7, full}, {7, full}})
	}
	ask := func(account string, now int64) [2]known {
		user, project := m.of(account, now)
		return [2]known{user, project}
	}
	learn("a", 0, ask("a", 0), 10)
	asked := ask("a", 5)
	m.sweepAt = 0
	learn("b", 1000, ask("b", 1000), 2000)
	if len(m.users) != 1 {
		t.Fatalf("%d users are known; want b alone", len(m.users))
	}
	learn("a", 1001, asked, 1500)
	if got := ask("a", 1001)[0]; got != (known{heard: heard{7, 1500}}) {
		t.Errorf("known of a: %+v", got)
	}
}

func TestWhatIsRememberedIsWithinReach(t *testing.T) {
	m := memory{caps: [2]int64{3, 4}, reach: [2]int64{30, 40}}
	m.learn("a", 1000, [2]known{}, [2]heard{}, [2]heard{{7, 5000}, {7, 5000}})
	for _, c := range []struct{ now, user, project int64 }{
		{1000, 1030, 1040},
		{1010, 1030, 1040},
		{100, 103, 104}, // the clock is set back
		{102, 103, 104},
	} {
		user, project := m.of("a", c.now)
		if user.full != c.user || project.full != c.project {
			t.Errorf("at %d: full at %d and %d; want %d and %d", c.now, user.full, project.full, c.user, c.project)
		}
	}
}
