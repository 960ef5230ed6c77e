package store

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zapcore"

	"github.com/meteproject/mete/store/internal/zaplog"
)

// Config tells how to reach an etcd.
type Config struct {
	Endpoints []string
	TLS       *tls.Config // nil: none
	User      string      // "": by certificate, or none
	Password  string
	Log       zerolog.Logger
}

// Connect returns a client of the etcd that cfg names. It does not wait for it:
// an etcd that is away is no error here.
func Connect(cfg Config) (*clientv3.Client, error) {
	token := ""
	if cfg.User != "" && cfg.Password != "" {
		token = noToken
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints,
		TLS:       cfg.TLS,
		Token:     token,
		// A member that hangs is noticed after 10 s + 3 s; grpc-go allows no
		// less than 10 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		PermitWithoutStream:  true,
		// Each try is bounded by its caller, who repeats it; one more is for a
		// token that ran out.
		MaxUnaryRetries: 2,
		Logger:          zaplog.New(cfg.Log, zapcore.ErrorLevel).Logger(),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(cfg.Endpoints, ", "), err)
	}
	if token != "" {
		c.Token, c.Username, c.Password = "", cfg.User, cfg.Password
	}
	return c, nil
}

// noToken is no token of any user. Given user and password, clientv3 would log in
// before it returns, without a bound on how long. With a token that etcd refuses,
// each call logs in if need be, within its own time.
const noToken = "none"

// CheckVersion asks every endpoint of c for its version and logs a warning for
// those with known faults in what mete relies on: permissions inside nested
// transactions, and watches. It returns the first error of an endpoint.
func CheckVersion(ctx context.Context, c *clientv3.Client, log zerolog.Logger) error {
	var first error
	for _, e := range c.Endpoints() {
		s, err := c.Status(ctx, e)
		if err != nil {
			if first == nil {
				first = fmt.Errorf("ask %s for its version: %w", e, err)
			}
			continue
		}
		if !supported(s.Version) {
			log.Warn().Str("endpoint", e).Str("version", s.Version).
				Msg("etcd is older than 3.5.33, 3.6.14 or 3.7.1 and has known faults; upgrade it")
		}
	}
	return first
}

// supported tells whether an etcd version is at least 3.5.33, 3.6.14 or 3.7.1.
func supported(version string) bool {
	core, _, _ := strings.Cut(version, "-")
	var v [3]int
	for i, part := range strings.SplitN(core, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		v[i] = n
	}
	least := map[int]int{5: 33, 6: 14, 7: 1}
	switch patch, listed := least[v[1]]; {
	case v[0] != 3:
		return v[0] > 3
	case listed:
		return v[2] >= patch
	}
	return v[1] > 7
}

// EnsureEpoch returns the random id of the store, and makes one if it has none. A
// restore from a backup must change it.
func EnsureEpoch(ctx context.Context, c *clientv3.Client) (string, error) {
	id := randomID(16)
	r, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(EpochKey), "=", 0)).
		Then(clientv3.OpPut(EpochKey, id)).
		Else(clientv3.OpGet(EpochKey)).
		Commit()
	if err != nil {
		return "", fmt.Errorf("ensure %s: %w", EpochKey, err)
	}
	if r.Succeeded {
		return id, nil
	}
	return string(r.Responses[0].GetResponseRange().GetKvs()[0].GetValue()), nil
}

// randomID returns n random bytes in hex.
func randomID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
