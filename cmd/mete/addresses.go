package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// addressesFile is the file in the data directory that tells which addresses are
// in use, for tests, scripts and metectl.
const addressesFile = "addresses.json"

// addresses are the addresses in use, each host:port or unix:///path.
type addresses struct {
	GRPC    string `json:"grpc"`
	Admin   string `json:"admin"`
	Metrics string `json:"metrics"`
	Peers   string `json:"peers,omitempty"`
	Etcd    string `json:"etcd,omitempty"` // of the embedded etcd
}

// write puts the file into dir, whole or not at all.
func (a addresses) write(dir string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, addressesFile+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", addressesFile, err)
	}
	_, err = tmp.Write(append(text, '\n'))
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(dir, addressesFile))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", addressesFile, err)
	}
	return nil
}

// removeAddresses removes the file; that there is none is no error.
func removeAddresses(dir string) error {
	err := os.Remove(filepath.Join(dir, addressesFile))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// makeDataDir makes dir, which only this user may enter: the embedded etcd
// has no password.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("close the data directory to others: %w", err)
	}
	return nil
}

// hostOf returns the host of host:port, or of a host alone.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
