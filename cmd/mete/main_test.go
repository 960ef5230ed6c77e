package main

import (
	"os"
	"testing"
	"time"
)

// asMete makes the test binary be mete.
const asMete = "METE_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMete) != "" {
		_ = os.Unsetenv(asMete)
		main()
		return
	}
	os.Exit(m.Run())
}

func fixedNow() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
