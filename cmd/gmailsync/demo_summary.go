package main

import (
	"time"
)

// sumUp collects the figures of the report.
func (d *demo) sumUp(v reportVerify) report {
	gmail, guard := d.sim.Stats(), d.worker.GuardStats()
	r := report{
		Gmail: reportGmail{
			Calls: gmail.Calls, Units: gmail.Units, Refused: gmail.Refused, MaxUserUnits60s: gmail.MaxUserUnits60s,
			MaxProjectUnits60s: gmail.MaxProjectUnits60s, MaxUserInFlight: gmail.MaxUserInFlight, SustainedUse: d.sustainedUse(),
		},
		Guard:       reportGuard{Admitted: guard.Admitted, Denied: guard.Denied, Units: guard.Units, RedisCalls: guard.RedisCalls},
		Requeued:    d.worker.Requeued(),
		Realtime:    d.watch.report(),
		Verify:      v,
		WallSeconds: time.Since(d.started).Seconds(),
		CPUSeconds:  cpuSeconds(),
	}
	for _, acc := range d.accounts {
		r.Accounts = append(r.Accounts, reportAccount{
			ID: acc.id, ThreadsListed: acc.status.Run.Listed, ThreadsStored: acc.status.Run.Stored,
			MessagesStored: acc.status.Messages, State: string(acc.status.State),
		})
	}
	return r
}

// sustainedUse is the share of its limit that the importing user used who used least of it, by the simulator's meter.
// An import shorter than a minute says nothing about it: the burst and the end weigh too much.
func (d *demo) sustainedUse() float64 {
	least := 0.0
	for _, acc := range d.accounts {
		minutes := acc.ended.Sub(acc.begun).Minutes()
		if minutes < 1 || acc.limit == 0 {
			continue
		}
		use := float64(acc.units) / minutes / float64(acc.limit)
		if least == 0 || use < least {
			least = use
		}
	}
	return least
}

func (d *demo) printSummary(r report) {
	line := d.screen.line
	line("")
	line("Mirrored and compared in %.0f s, with %.1f s of CPU (simulator included):", r.WallSeconds, r.CPUSeconds)
	for i, acc := range r.Accounts {
		line("  %s: %d of %d threads of the import, %d messages now, %s", d.accounts[i].name, acc.ThreadsStored, acc.ThreadsListed,
			acc.MessagesStored, acc.State)
	}
	line("  compared message by message: %d missing, %d extra, %d different", r.Verify.Missing, r.Verify.Extra, r.Verify.Different)
	line("  Gmail: %d units, %d calls refused; a user used at most %d of %d units in any 60 s",
		r.Gmail.Units, r.Gmail.Refused, r.Gmail.MaxUserUnits60s, d.options.userLimit)
	if r.Gmail.SustainedUse > 0 {
		line("  an import used %.0f %% of its user's limit", 100*r.Gmail.SustainedUse)
	}
	line("  guard: %d calls admitted, %d denied and brought back after their wait (%d jobs)", r.Guard.Admitted, r.Guard.Denied, r.Requeued)
	line("  live changes: %d, stored %.2f s after they happened (median), %.2f s (99th percentile)", r.Realtime.Changes,
		r.Realtime.P50/1000, r.Realtime.P99/1000)
	verdict := "The mirror is equal and Gmail refused nothing."
	switch {
	case !r.Verify.equal():
		verdict = "FAILED: the mirror differs from the mailboxes."
	case r.Gmail.Refused > 0:
		verdict = "FAILED: Gmail refused calls."
	}
	line("%s", verdict)
	line("")
}
