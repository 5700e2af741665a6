package modeltest

import (
	"fmt"
	"slices"
	"testing"
)

// relaticle/relaticle#640, rustmailer/bichon#299, kenn-io/msgvault#260: a process dies before or after any commit, publishing
// or ack of any consumer, or while Gmail answers. The mirror is whole after a restart, and nothing stored is fetched again.
func TestMirrorIsWholeAfterADeathAtAnyPoint(t *testing.T) {
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprint("queue in the process ", embedded), func(t *testing.T) {
			names := CrashPoints(t, embedded, inMemory)
			for _, what := range []string{
				"StartRun", "PinBaseline", "AddPage", "OpenBatches", "SaveThread", "FinishBatch", "QueueAbsent", "FinishRun",
				"ApplyHistory", "HistoryDone", "Postpone", "ack initial-sync", "ack thread-batch", "ack history",
				"publish initial-sync", "publish thread-batch", "publish history",
			} {
				for _, when := range []string{"before ", "after "} {
					if !slices.Contains(names, when+what) {
						t.Errorf("nobody died %s%s", when, what)
					}
				}
			}
		})
	}
}
