package journal

import "golang.org/x/sys/unix"

// boot returns what names this run of the machine; "" if that cannot be told.
func boot() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
