package store

import "time"

// A Presence is what a replica tells of itself.
type Presence struct {
	Address string `json:"address"`
	Version string `json:"version"`
	Feature int    `json:"feature_level"`
	// Process names the process, 16 lower-case hex digits, the same in all its
	// incarnations. Versions that settle nothing have none.
	Process string `json:"process,omitempty"`
	// Before are processes that are gone, written as Process, of which this one remembers
	// what they have settled.
	Before []string `json:"before,omitempty"`
	// Zones is the version of the data of time zones that the replica reckons with, such as
	// 2025c. Versions that say none may read that of their machine.
	Zones string `json:"time_zones,omitempty"`
	// Clock is the replica's wall clock when it wrote this. It is shown and
	// never compared with another clock to decide something.
	Clock time.Time `json:"clock"`
}
