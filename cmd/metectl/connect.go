package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/store"
)

const defaultEndpoint = "127.0.0.1:2379"

// withStore runs do with a client of the store, within --timeout.
func (c *cli) withStore(ctx context.Context, what string, do func(context.Context, *clientv3.Client) error) error {
	cfg, err := c.storeConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cluster, err := store.NewCluster(cfg)
	if err != nil {
		return c.storeError(what, err)
	}
	defer cluster.Close() //nolint:errcheck // nothing is left to do about it
	if err := do(ctx, answering(ctx, cluster)); err != nil {
		return c.storeError(what, err)
	}
	return nil
}

// answering returns a client of an endpoint that answers, if there is one. What is
// wrong with it or the store is for the first real call to say.
func answering(ctx context.Context, cluster *store.Cluster) *clientv3.Client {
	if len(cluster.Clients()) > 1 {
		_, _ = cluster.Do(ctx, clientv3.OpGet(store.EpochKey, clientv3.WithCountOnly()))
	}
	return cluster.Client()
}

func (c *cli) storeConfig() (store.Config, error) {
	cfg := store.Config{Log: zerolog.Nop(), Endpoints: c.endpoints}
	if c.dataDir != "" {
		address, err := readAddress(c.dataDir)
		if err != nil {
			return cfg, err
		}
		cfg.Endpoints = []string{address}
	}
	if len(cfg.Endpoints) == 0 {
		return cfg, usageError("--endpoints names no address", "write --endpoints "+defaultEndpoint)
	}
	var err error
	if cfg.User, cfg.Password, err = c.credentials(); err != nil {
		return cfg, err
	}
	cfg.TLS, err = c.tlsConfig(cfg.Endpoints)
	return cfg, err
}

// readAddress returns etcd's address from the addresses.json of a running mete.
func readAddress(dir string) (string, error) {
	const what = "cannot find the store of this data folder"
	path := filepath.Join(dir, "addresses.json")
	text, err := os.ReadFile(path)
	if err != nil {
		f := &failure{
			code: exitUnreachable, what: what, why: err.Error(),
			next: "start mete serve --data-dir " + dir + ", which writes the file when it is ready",
		}
		if errors.Is(err, os.ErrPermission) {
			f.code, f.next = exitForbidden, "run metectl as the user that mete runs as"
		}
		return "", f
	}
	var addresses struct {
		Etcd string `json:"etcd"`
	}
	if err := json.Unmarshal(text, &addresses); err != nil || addresses.Etcd == "" {
		return "", &failure{
			code: exitUnreachable, what: what, why: path + " names no etcd; that mete uses etcd elsewhere",
			next: "name that etcd with --endpoints",
		}
	}
	return addresses.Etcd, nil
}

// credentials returns the user and password of --user and the environment.
func (c *cli) credentials() (user, password string, err error) {
	user, password, found := strings.Cut(c.user, ":")
	if user == "" || found {
		return user, password, nil
	}
	password = c.setting("password")
	if password == "" {
		return "", "", usageError("--user "+user+" comes without a password", "set METECTL_PASSWORD")
	}
	return user, password, nil
}

// tlsConfig returns nil where nothing asks for TLS.
func (c *cli) tlsConfig(endpoints []string) (*tls.Config, error) {
	encrypted := c.cacert != "" || c.cert != "" || c.key != ""
	for _, e := range endpoints {
		encrypted = encrypted || strings.HasPrefix(e, "https://")
	}
	if !encrypted {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.cacert != "" {
		pem, err := os.ReadFile(c.cacert)
		if err != nil {
			return nil, certificateError("cannot read --cacert", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageError("--cacert "+c.cacert+" holds no certificate", "name a PEM file")
		}
	}
	if (c.cert == "") != (c.key == "") {
		return nil, usageError("--cert and --key go together", "give both or none")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, certificateError("cannot read --cert and --key", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// certificateError tells that a flag names no usable certificate.
func certificateError(what string, err error) error {
	f := &failure{code: exitUsage, what: what, why: err.Error(), next: "name a readable PEM file"}
	if errors.Is(err, os.ErrPermission) {
		f.code = exitForbidden
	}
	return f
}

// storeError classifies what the store or the way to it said.
func (c *cli) storeError(what string, err error) error {
	var f *failure
	var a answer
	if errors.As(err, &f) || errors.As(err, &a) {
		return err
	}
	at := strings.Join(c.endpoints, ", ")
	if c.dataDir != "" {
		at = "the address in " + filepath.Join(c.dataDir, "addresses.json")
	}
	f = &failure{code: exitUnreachable, what: what, why: err.Error(), next: "look at the log of etcd at " + at}
	switch code := status.Code(err); {
	case forbidden(err):
		f.code, f.next = exitForbidden, "use --user or a certificate that may do this"
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded, code == codes.Unavailable:
		f.why = fmt.Sprintf("no answer from %s within %s", at, c.timeout)
		f.next = "start mete serve, or name the right address with --endpoints or --data-dir"
		if !c.endpointsByDefault {
			f.next = "check the address and that etcd runs; --timeout allows more time"
		}
	}
	return f
}

func forbidden(err error) bool {
	for _, known := range []error{
		rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty,
		rpctypes.ErrInvalidAuthToken, rpctypes.ErrPermissionNotGranted,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	code := status.Code(err)
	return code == codes.PermissionDenied || code == codes.Unauthenticated
}
