package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// report is what `gmailsync demo --report FILE` writes: a contract, its names do not change.
type report struct {
	Accounts    []reportAccount `json:"accounts"`
	Gmail       reportGmail     `json:"gmail"` // from the simulator's own meter, never from the guard
	Guard       reportGuard     `json:"guard"`
	Requeued    int64           `json:"requeued"`
	Realtime    reportRealtime  `json:"realtime"`
	Verify      reportVerify    `json:"verify"`
	WallSeconds float64         `json:"wall_seconds"`
	CPUSeconds  float64         `json:"cpu_seconds"` // of the whole process, simulator included
}

type reportAccount struct {
	ID             string `json:"id"`
	ThreadsListed  int    `json:"threads_listed"`
	ThreadsStored  int    `json:"threads_stored"`
	MessagesStored int64  `json:"messages_stored"`
	State          string `json:"state"`
}

type reportGmail struct {
	Calls              map[string]int64 `json:"calls"`
	Units              int64            `json:"units"`
	Refused            int64            `json:"refused"`
	MaxUserUnits60s    int64            `json:"max_user_units_60s"`
	MaxProjectUnits60s int64            `json:"max_project_units_60s"`
	MaxUserInFlight    int              `json:"max_user_in_flight"`
	SustainedUse       float64          `json:"sustained_use"` // units ÷ minutes ÷ limit of the importing user that used least; 0 if no import lasted a minute
}

type reportGuard struct {
	Admitted   int64 `json:"admitted"`
	Denied     int64 `json:"denied"`
	Units      int64 `json:"units"`
	RedisCalls int64 `json:"redis_calls"`
}

type reportRealtime struct {
	Changes int     `json:"changes"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

type reportVerify struct {
	Missing   int `json:"missing"`
	Extra     int `json:"extra"`
	Different int `json:"different"`
}

func (v reportVerify) equal() bool { return v == reportVerify{} }

func (r report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}
