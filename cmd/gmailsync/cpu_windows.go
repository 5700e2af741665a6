package main

import (
	"time"

	"golang.org/x/sys/windows"
)

// cpuSeconds is the CPU time that this process has used.
func cpuSeconds() float64 {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user); err != nil {
		return 0 // cannot fail for the own process
	}
	return float64(ticks(kernel)+ticks(user)) / float64(10*time.Second/time.Microsecond) // in steps of 100 ns
}

func ticks(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
