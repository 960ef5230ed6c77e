package plan

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The data of time zones is part of the binary, and no other is read: neither that of the
// machine nor what ZONEINFO names. `make zones` brings it up to date.
//
//go:embed zones/index.txt
var zoneIndex string

//go:embed zones/zones.bin
var zoneData string

// ZonesVersion returns the version of the data of time zones, such as "2025c".
func ZonesVersion() string {
	version, _, _ := strings.Cut(zoneIndex, "\n")
	return version
}

// LoadZone returns the time zone of a name of the IANA, as the data of this binary has it.
func LoadZone(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	_, entry, found := strings.Cut(zoneIndex, "\n"+name+" ")
	if !found || name == "" || strings.ContainsAny(name, " \n") {
		return nil, fmt.Errorf("time zone %q is not in the data of version %s", name, ZonesVersion())
	}
	place, _, _ := strings.Cut(entry, "\n")
	from, length, _ := strings.Cut(place, " ")
	at, errAt := strconv.Atoi(from)
	size, errSize := strconv.Atoi(length)
	if errAt != nil || errSize != nil || at < 0 || size < 0 || at+size > len(zoneData) {
		return nil, fmt.Errorf("time zone %q: the data of version %s is damaged", name, ZonesVersion())
	}
	return time.LoadLocationFromTZData(name, []byte(zoneData[at:at+size]))
}
