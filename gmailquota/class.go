package gmailquota

import "context"

// Class says what a call is for. It decides how far ahead the call may reserve units, see Config.Horizons, and each has
// a share of them that it gets whenever it asks, see Config.Shares.
type Class uint8

const (
	// Backfill is for imports: it takes what nobody else wants.
	Backfill Class = iota
	// Realtime is for changes that just happened: it may reserve far ahead.
	Realtime
	// Maintenance is for watches, profiles and checks: it may reserve far ahead.
	Maintenance
)

func (c Class) String() string {
	switch c {
	case Backfill:
		return "backfill"
	case Realtime:
		return "realtime"
	case Maintenance:
		return "maintenance"
	}
	return "unknown"
}

type callKey struct{}

type call struct {
	account string
	class   Class
}

// WithCall returns a context whose Gmail calls are charged to this account key and class.
func WithCall(ctx context.Context, account string, class Class) context.Context {
	return context.WithValue(ctx, callKey{}, call{account, class})
}

// CallFrom returns what WithCall stored; ok is false without it.
func CallFrom(ctx context.Context) (account string, class Class, ok bool) {
	c, ok := ctx.Value(callKey{}).(call)
	return c.account, c.class, ok
}
