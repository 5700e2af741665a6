package consumers

import (
	"fmt"
	"runtime"

	"go.uber.org/zap"
)

// PanicError is a panic that was caught around one piece of work, which counts as that work's failure.
type PanicError struct{ what string }

func (e *PanicError) Error() string { return "panic: " + e.what }

// Caught turns what recover returned into an error, and logs the stack. The value of a panic may hold a piece of somebody's
// mail: only the texts of Go's own runtime are kept, of any other value its type.
func Caught(log *zap.Logger, account string, value any) error {
	what := fmt.Sprintf("%T", value)
	if e, ok := value.(runtime.Error); ok {
		what = e.Error()
	}
	log.Error("panic", zap.String("account", ShortID(account)), zap.String("what", what), zap.Stack("stack"))
	return &PanicError{what}
}
