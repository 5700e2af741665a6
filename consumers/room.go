package consumers

import "context"

// Room bounds how many jobs hold large mail in memory at once, from its fetch until it is stored. Safe for concurrent use.
type Room struct{ places chan struct{} }

// NewRoom returns a room for n jobs.
func NewRoom(n int) *Room { return &Room{make(chan struct{}, n)} }

// Enter waits for a place for the job of ctx, which keeps it until LetGo. A job has one place, however much it fetches: it
// never waits for a second one while others wait for its first. Without a job (see WithPlace) nothing is counted: a
// command fetches one thing after the other.
func (r *Room) Enter(ctx context.Context) error {
	p, _ := ctx.Value(placeKey{}).(*place)
	if p == nil || p.in != nil {
		return nil
	}
	select {
	case r.places <- struct{}{}:
		p.in = r
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// place is what a job holds. A job is worked by one goroutine.
type place struct{ in *Room }

type placeKey struct{}

// WithPlace begins a job. End it with LetGo.
func WithPlace(ctx context.Context) context.Context {
	return context.WithValue(ctx, placeKey{}, &place{})
}

// LetGo gives back the place of the job of ctx, if it has one: what it fetched is stored, or no longer held.
func LetGo(ctx context.Context) {
	if p, _ := ctx.Value(placeKey{}).(*place); p != nil && p.in != nil {
		<-p.in.places
		p.in = nil
	}
}
