package gmailquota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// onBoth runs a test on the Redis in the process and on a real one, both with virtual time.
func onBoth(t *testing.T, test func(t *testing.T, r quotatest.Redis)) {
	t.Run("miniredis", func(t *testing.T) { test(t, quotatest.Embedded(t)) })
	t.Run("redis-server", func(t *testing.T) { test(t, quotatest.Real(t)) })
}

// testConfig denies instead of falling back, and gives a busy machine time.
func testConfig(change ...func(*gmailquota.Config)) gmailquota.Config {
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen = false
	cfg.RedisTimeout = 10 * time.Second
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// differentialSteps, on each Redis, is enough for a developer's run; CI and soak runs set GMAILQUOTA_STEPS.
func differentialSteps(t *testing.T) int {
	if s := os.Getenv("GMAILQUOTA_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("GMAILQUOTA_STEPS: %v", err)
		}
		return n
	}
	return 4_000
}

// The core and the script agree on every decision, wait and stored number, over random histories of several users with
// lost keys, expiry, replays and changing limits.
// spring-cloud/spring-cloud-gateway#2412, redis/redis#13115, bucket4j/bucket4j#51
func TestCoreAndScriptAgree(t *testing.T) {
	onBoth(t, func(t *testing.T, r quotatest.Redis) {
		t.Parallel()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		h := &history{t: t, r: r, rnd: rand.New(rand.NewPCG(seed, 1)), tickets: map[[2]any][2]int64{}}
		h.reconfigure()
		for n := 0; n < differentialSteps(t); {
			if n += h.step(); t.Failed() {
				t.Fatalf("at step %d", n)
			}
		}
	})
}

type made struct {
	account, id string
	units       int64
	after       gmailquota.Decision
}

type history struct {
	t     *testing.T
	r     quotatest.Redis
	rnd   *rand.Rand
	guard *gmailquota.Guard
	model *gmailquota.Model
	made  []made
	// tickets are the last ones given out to an account and class.
	tickets map[[2]any][2]int64
	born    int64 // of the project, when last seen
}

// reconfigure takes other limits and keeps the state, as a rolling restart does.
func (h *history) reconfigure() {
	cfg := testConfig(func(c *gmailquota.Config) {
		c.UserLimit = []int64{300, 6000, 6001, 15_000, 1_000_000}[h.rnd.IntN(5)]
		c.ProjectLimit = []int64{7000, 99_999, 1_200_000}[h.rnd.IntN(3)]
		c.InFlight = 1 + h.rnd.IntN(12)
		c.DailyLimit = []int64{0, 3000, 80_000_000}[h.rnd.IntN(3)]
		c.Shares = map[gmailquota.Class]int{gmailquota.Realtime: 1 + h.rnd.IntN(50), gmailquota.Backfill: 1 + h.rnd.IntN(40)}
		c.KeyTTL = time.Duration(1+h.rnd.IntN(9)) * 2 * time.Minute
	})
	g, err := gmailquota.New(h.r.Client, cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.guard = g
	if h.model == nil {
		h.model = gmailquota.NewModel(cfg, h.r.Now().UnixMicro())
	} else {
		h.model.Reconfigure(cfg)
	}
}

// step does one thing, or several acquisitions in one run of the script. It returns how many it did.
func (h *history) step() int {
	ctx := context.Background()
	account := fmt.Sprintf("user-%d", h.rnd.IntN(4))
	switch n := h.rnd.IntN(1000); {
	case n < 3:
		h.reconfigure()
		return 1
	case n < 10:
		h.lose(account)
		return 1
	case n < 300:
		h.advance()
		return 1
	}
	s := h.random(account)
	if s.Op == "acquire" {
		return h.together(s)
	}
	want := h.model.Do(s)
	got, err := h.guard.Run(ctx, s)
	if err != nil {
		h.t.Fatal(err)
	}
	if got != want {
		h.t.Errorf("%+v: the script decided %v, the core %v", s, got, want)
	}
	h.compare(s)
	return 1
}

// together sends acquisitions in one run, several of the same user among them. They are decided as one after the other.
func (h *history) together(first gmailquota.Step) int {
	steps := []gmailquota.Step{first}
	for n := max(h.rnd.IntN(8)-4, 0); n > 0; n-- {
		s := h.random(fmt.Sprintf("user-%d", h.rnd.IntN(4)))
		for s.Op != "acquire" {
			s = h.random(s.Account)
		}
		steps = append(steps, s)
	}
	got, err := h.guard.RunTogether(context.Background(), steps)
	if err != nil {
		h.t.Fatal(err)
	}
	for i, s := range steps {
		want := h.model.Do(s)
		if got[i] != want {
			h.t.Errorf("%+v, the %d. of %d: the script decided %v, the core %v", s, i+1, len(steps), got[i], want)
		}
		h.note(s, want)
	}
	for _, s := range steps {
		h.compare(s)
	}
	return len(steps)
}

// note keeps what later steps refer to.
func (h *history) note(s gmailquota.Step, d gmailquota.Decision) {
	h.born = d[9]
	if d[6] > 0 {
		h.tickets[[2]any{s.Account, s.Class}] = [2]int64{d[5], d[6]}
	}
	if d[0] == 0 && d[2] > 0 {
		h.made = append(h.made, made{s.Account, s.ID, s.Units, d})
		if len(h.made) > 50 {
			h.made = h.made[1:]
		}
	}
}

func (h *history) compare(s gmailquota.Step) {
	userKey, projectKey := h.guard.Keys(s.Account)
	user, project := h.model.Stored(s.Account)
	stored := h.r.Client.MGet(context.Background(), userKey, projectKey).Val()
	if len(stored) != 2 {
		h.t.Fatalf("%+v: Redis holds %v", s, stored)
	}
	if got, _ := stored[0].(string); got != user {
		h.t.Errorf("%+v: user state\nscript %q\ncore   %q", s, got, user)
	}
	if got, _ := stored[1].(string); got != project {
		h.t.Errorf("%+v: project state\nscript %q\ncore   %q", s, got, project)
	}
}

func (h *history) lose(account string) {
	user, project := h.guard.Keys(account)
	switch h.rnd.IntN(3) {
	case 0:
		h.r.Client.Del(context.Background(), project)
		h.model.Lose("")
	default:
		h.r.Client.Del(context.Background(), user)
		h.model.Lose(account)
	}
}

// advance moves time by anything from a microsecond to 30 days; an expiry is a matter of milliseconds in Redis, so that
// longer steps are whole ones.
func (h *history) advance() {
	var d time.Duration
	switch n := h.rnd.IntN(1000); {
	case n < 500:
		d = time.Duration(1+h.rnd.Int64N(2_000)) * time.Millisecond
	case n < 960:
		d = time.Duration(1+h.rnd.Int64N(400)) * time.Millisecond
	case n < 998:
		d = time.Duration(1+h.rnd.Int64N(900_000)) * time.Millisecond
	case n < 999:
		d = time.Duration(1+h.rnd.Int64N(30*24*3600_000)) * time.Millisecond
	default: // a clock that is set back; the life of keys goes by another one
		h.r.Back(time.Duration(1+h.rnd.Int64N(7200_000)) * time.Millisecond)
		h.model.Back(h.r.Now().UnixMicro())
		return
	}
	h.r.Advance(d)
	h.model.Now += d.Microseconds()
}

// told is what a process may remember, of the present state or of a lost one.
func (h *history) told(old made) gmailquota.Told {
	born := []int64{-1, 0, old.after[9], h.born}[h.rnd.IntN(4)]
	return gmailquota.Told{Born: born, US: []int64{0, h.rnd.Int64N(4_000_000), h.rnd.Int64N(50_000_000)}[h.rnd.IntN(3)]}
}

func (h *history) random(account string) gmailquota.Step {
	s := gmailquota.Step{Account: account, ID: gmailquota.NewID(), Calls: 1, Units: 1 + h.rnd.Int64N(100)}
	var old made
	if len(h.made) > 0 {
		old = h.made[h.rnd.IntN(len(h.made))]
	}
	switch n := h.rnd.IntN(100); {
	case n < 70:
		s.Op = "acquire"
		s.Horizon = []int64{0, 400_000, 30_000_000, h.rnd.Int64N(1_000_000)}[h.rnd.IntN(4)]
		s.Class = gmailquota.Class(h.rnd.IntN(3))
		s.MaxWait = []time.Duration{0, -1, 3 * time.Second}[h.rnd.IntN(3)]
		s.Patience = []int64{0, 1 << 50, h.rnd.Int64N(100_000_000)}[h.rnd.IntN(3)]
		s.Ahead = []int64{0, 0, h.rnd.Int64N(30)}[h.rnd.IntN(3)]
		if k := [2]any{account, s.Class}; h.rnd.IntN(3) > 0 {
			s.From, s.To = h.tickets[k][0], h.tickets[k][1]
		}
		if n < 5 {
			s.Calls = 1 + h.rnd.Int64N(4)
		}
		if n == 5 {
			s.HoldUser, s.HoldPr = max(h.rnd.Int64N(2_000_000)-1_000_000, 0), max(h.rnd.Int64N(2_000_000)-1_000_000, 0)
		}
		if n < 20 {
			s.ToldUser, s.ToldPr = h.told(old), h.told(old)
		}
		if n < 30 {
			for _, m := range h.made[len(h.made)/2:] {
				if m.account == account && h.rnd.IntN(3) == 0 {
					s.Released += m.id
				}
			}
		}
		if n > 64 && old.id != "" { // a replay
			s.Account, s.ID, s.Units = old.account, old.id, old.units
		}
	case n < 80:
		s.Op, s.Released = "release", old.id
		if old.id != "" {
			s.Account = old.account
		}
	case n < 94:
		s.Op = "refund"
		if old.id != "" {
			s.Account, s.ID, s.Units, s.After = old.account, old.id, old.units, old.after
		}
	case n == 99:
		s.Op, s.Scope = "reset", gmailquota.Scope(h.rnd.IntN(2))
	default:
		s.Op = "penalize"
		s.Scope = gmailquota.Scope(h.rnd.IntN(3))
		if h.rnd.IntN(2) == 0 {
			s.Admitted = h.model.Now - h.rnd.Int64N(5_000_000)
		}
		if h.rnd.IntN(2) == 0 {
			s.Stated = h.rnd.Int64N(20_000_000)
		}
	}
	return s
}
