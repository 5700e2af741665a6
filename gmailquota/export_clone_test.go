package gmailquota

import (
	"maps"
	"slices"
)

// Clone is a model with the same state that changes by itself.
func (m *Model) Clone() *Model {
	c := *m
	c.users = maps.Clone(m.users)
	for a, k := range c.users {
		k.state.records = slices.Clone(k.state.records)
		c.users[a] = k
	}
	return &c
}
