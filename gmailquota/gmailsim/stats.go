package gmailsim

import (
	"maps"
	"time"
)

// Stats is what the simulator's own meter saw since New. Calls that failed authentication or a request check do not
// appear: Gmail does not charge them.
type Stats struct {
	Calls     map[string]int64 `json:"calls"`      // by method, refused and faulted ones included
	Units     int64            `json:"units"`      // charged for admitted calls
	Refused   int64            `json:"refused"`    // by the meter; injected faults are counted in Faults
	RefusedBy map[string]int64 `json:"refused_by"` // user, project, in-flight
	// The most units asked for in any 60 seconds, refused calls included.
	MaxUserUnits60s    int64 `json:"max_user_units_60s"`
	MaxProjectUnits60s int64 `json:"max_project_units_60s"`
	// The most calls of one user at a time, a refused one included. A batch of n counts as n.
	MaxUserInFlight int   `json:"max_user_in_flight"`
	Faults          int64 `json:"faults"`

	Accounts map[string]AccountStats   `json:"accounts"` // by address
	Gets     map[string]map[string]int `json:"-"`        // by address and thread id: threads.get calls that were answered
}

// AccountStats is one account's share.
type AccountStats struct {
	Units       int64     `json:"units"`
	Units60s    int64     `json:"units_60s"` // asked for in the last 60 seconds
	MaxUnits60s int64     `json:"max_units_60s"`
	InFlight    int       `json:"in_flight"`
	Refused     int64     `json:"refused"`
	FirstCall   time.Time `json:"first_call"`
	LastCall    time.Time `json:"last_call"`
	Pushes      Pushes    `json:"pushes"`
}

// Pushes counts an account's notifications.
type Pushes struct {
	Sent     int64 `json:"sent"`    // acknowledged
	Retried  int64 `json:"retried"` // deliveries that failed and were to be repeated
	Dropped  int64 `json:"dropped"` // given up, as real ones may be
	InFlight int64 `json:"in_flight"`
}

// Stats returns a copy.
func (s *Server) Stats() Stats {
	stats := s.meter.snapshot()
	stats.Gets = map[string]map[string]int{}
	for _, box := range s.boxes() {
		a := stats.Accounts[box.address]
		a.Pushes = box.pushes()
		stats.Accounts[box.address] = a
		box.mu.Lock()
		stats.Gets[box.address] = maps.Clone(box.gets)
		box.mu.Unlock()
	}
	return stats
}

func (m *meter) snapshot() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	stats := m.stats
	stats.Calls = maps.Clone(stats.Calls)
	stats.RefusedBy = maps.Clone(stats.RefusedBy)
	stats.MaxProjectUnits60s = m.project.maxAsked
	stats.Accounts = map[string]AccountStats{}
	for name, u := range m.users {
		u.asked.drop(now)
		stats.MaxUserUnits60s = max(stats.MaxUserUnits60s, u.maxAsked)
		stats.Accounts[name] = AccountStats{
			Units: u.units, Units60s: u.asked.sum, MaxUnits60s: u.maxAsked, InFlight: u.inFlight, Refused: u.refused,
			FirstCall: u.first, LastCall: u.last,
		}
	}
	return stats
}
