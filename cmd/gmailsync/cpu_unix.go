//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuSeconds is the CPU time that this process has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail for RUSAGE_SELF
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / float64(time.Second)
}
