package journal

import (
	"os"
	"strings"
)

// boot returns what names this run of the machine; "" if that cannot be told.
func boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
