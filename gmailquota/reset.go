package gmailquota

import (
	"context"
	"fmt"
)

// Reset forgets what Gmail refused: of an account its pause, its episodes, its learned rate and its lowered in-flight
// cap; of the whole project, if account is "", its pause, episodes and learned rate. All processes on this Redis follow. It is for an operator who knows
// better than the refusals, and it never lets a limit be broken: the bucket is empty afterwards, and what is reserved ahead
// stays charged, as far as the longest horizon, 30 s. Calls under way stay counted. A caller that sleeps a wait quoted
// before is not woken. The error is Redis's; then nothing is known to have changed.
func (g *Guard) Reset(ctx context.Context, account string) error {
	what := ScopeUser
	if account == "" {
		what = ScopeProject
	}
	if _, err := g.run(ctx, "reset", []string{g.projectKey, g.userKey(account)}, what.String()); err != nil {
		return fmt.Errorf("gmailquota: resetting the %s's bucket in Redis: %w", what, err)
	}
	return nil
}

// reset is the core's part; script.lua does the same.
func reset(u *userState, p *projectState, now int64, l limits, what Scope) {
	if what == ScopeProject {
		p.fullAt = emptied(p.fullAt, &p.penalty, now, l.project, l.longest)
		p.penalty = penalty{}
		return
	}
	u.fullAt = emptied(u.fullAt, &u.penalty, now, l.user, l.longest)
	u.penalty = penalty{}
	u.cap, u.capAt = 0, 0
}

// emptied is when a bucket is full again that holds nothing now. The pause cannot be told from what is reserved ahead,
// which is no further than the longest horizon.
func emptied(fullAt int64, s *penalty, now, capUS, longest int64) int64 {
	return min(max(fullAt, now+capUS), now+scaled(capUS, s.slowest())+longest)
}
