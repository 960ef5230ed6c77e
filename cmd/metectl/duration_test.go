package main

import (
	"testing"
	"time"
)

func TestParseExpiry(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		in   string
		want string // "": an error
	}{
		{"90d", "2027-02-28T12:00:00Z"},
		{"1d12h", "2026-12-02T00:00:00Z"},
		{"45m", "2026-11-30T12:45:00Z"},
		{"2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z"},
		{"2027-01-31T01:00:00+02:00", "2027-01-30T23:00:00Z"},
		{"2020-01-31T00:00:00Z", ""},
		{"0d", ""},
		{"-5m", ""},
		{"90", ""},
		{"999999d", ""},
		{"", ""},
		{"soon", ""},
	} {
		got, err := parseExpiry(tt.in, now)
		if tt.want == "" {
			if err == nil {
				t.Errorf("parseExpiry(%q) = %v; want an error", tt.in, got)
			}
			continue
		}
		if err != nil || got.Format(time.RFC3339) != tt.want {
			t.Errorf("parseExpiry(%q) = %v, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}
