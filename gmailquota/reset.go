package gmailquota

import (
	"context"
	"fmt"
)

// Reset forgets what Gmail refused: of an account its pause, its episodes, its learned rate and its lowered in-flight
// cap; of the whole project, if account is "", its pause, episodes and learned rate. All processes on this Redis follow,
// but one that could not yet tell Redis of a refusal of its own still does. It is for an operator who knows better than
// the refusals, and it never lets a limit be broken: the bucket is empty afterwards, and what is reserved ahead stays
// charged, as far as the longest horizon, 30 s. Calls under way stay counted. A caller that sleeps a wait quoted before is
// not woken. The error is Redis's; then nothing is known to have changed.
func (g *Guard) Reset(ctx context.Context, account string) error {
	what := ScopeUser
	if account == "" {
		what = ScopeProject
	}
	if _, err := g.run(ctx, "reset", []string{g.projectKey, g.userKey(account)}, what.String()); err != nil {
		return fmt.Errorf("gmailquota: resetting the %s's bucket in Redis: %w", what, err)
	}
	g.local.reset(account, what)
	return nil
}

// reset is the core's part; script.lua does the same.
func reset(u *userState, p *projectState, now int64, l limits, what Scope) {
	if what == ScopeProject {
		p.fullAt = p.emptied(p.fullAt, now, l.project, l.longest)
		p.penalty = penalty{}
		return
	}
	u.fullAt = u.emptied(u.fullAt, now, l.user, l.longest)
	u.penalty = penalty{}
	u.cap, u.capAt = 0, 0
}

// emptied is when a bucket is full again that holds nothing now and whose pause has ended. The pause cannot be told from
// what is reserved ahead, which is no further than the bucket reaches.
func (s *penalty) emptied(fullAt, now, capUS, longest int64) int64 {
	s.end = 0
	return min(max(fullAt, now+capUS), s.reach(now, capUS, longest))
}
