package quotatest

import (
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// watchers makes a guard that counts the events of one kind.
func (s *suite) watchers(kind gmailquota.EventKind, change func(*gmailquota.Config)) (*gmailquota.Guard, *int) {
	s.Helper()
	n := new(int)
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen, cfg.RedisTimeout = false, 10*time.Second
	change(&cfg)
	g, err := gmailquota.New(s.r.Client, cfg, gmailquota.WithClock(s.r.Now), gmailquota.WithObserver(func(e gmailquota.Event) {
		if e.Kind == kind {
			*n++
		}
	}))
	if err != nil {
		s.Fatal(err)
	}
	return g, n
}

func (s *suite) day() {
	limit := func(c *gmailquota.Config) { c.DailyLimit = 300 }
	s.ready(limit)
	g, said := s.watchers(gmailquota.DayReached, limit)
	other, saidByOther := s.watchers(gmailquota.DayReached, limit)
	for range 3 { // 1 + 3 x 100 units
		s.admit(g, now("a", "watch")).Release()
		s.r.Advance(2 * time.Second)
	}
	wait := s.deny(g, get("b", gmailquota.Backfill), gmailquota.BucketDay)
	s.admit(g, get("b", gmailquota.Realtime)).Release()
	s.admit(other, now("c", "watch")).Release()
	if *said+*saidByOther != 1 {
		s.Errorf("said %d times", *said+*saidByOther)
	}
	turns := s.r.Now().Add(wait).UTC()
	if turns.Hour() != 8 || turns.Minute() != 0 || wait > 24*time.Hour {
		s.Errorf("the day turns at %v", turns)
	}
	s.r.Advance(wait - time.Microsecond)
	s.deny(g, get("b", gmailquota.Backfill), gmailquota.BucketDay)
	s.r.Advance(time.Microsecond)
	s.admit(g, get("b", gmailquota.Backfill)).Release()
	if d := s.snapshot(g, "b").Day; d.Used != 40 || d.Limit != 300 || d.TurnsIn <= 0 || d.TurnsIn > 24*time.Hour {
		s.Errorf("on the next day: %+v", d)
	}
}

func (s *suite) dayKept() {
	g := s.ready()
	before := s.snapshot(g, "a").Day.Used
	gr := s.admit(g, now("a", "watch"))
	s.admit(g, get("b", gmailquota.Realtime)).Release()
	gr.Refund(ctx)
	s.r.Advance(time.Hour)
	if used := s.snapshot(g, "a").Day.Used - before; used != 40 {
		s.Errorf("%d units are counted; want the 40 of the call that was made", used)
	}
}
