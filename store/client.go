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
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

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

// Connect returns one client of all endpoints that cfg names, which takes them in
// turn: fit for a single endpoint, and for tools. It does not wait for etcd: one that
// is away is no error here.
func Connect(cfg Config) (*clientv3.Client, error) { return dial(cfg, false) }

// dial returns a client. One that is hasty fails a request at once while its
// connection is broken, for there are others; else the request waits for it.
func dial(cfg Config, hasty bool) (*clientv3.Client, error) {
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
		DialOptions:     dialOptions(hasty),
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

// Pauses between attempts to connect, and how long one may take. The defaults of
// grpc-go are up to 120 s and 20 s, for which an etcd that is back would be missed.
const (
	firstRedial = 100 * time.Millisecond
	lastRedial  = time.Second
	dialTimeout = 3 * time.Second
)

func dialOptions(hasty bool) []grpc.DialOption {
	redial := backoff.DefaultConfig
	redial.BaseDelay, redial.MaxDelay = firstRedial, lastRedial
	options := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout}),
	}
	if hasty {
		// clientv3 asks for the opposite with each request; the last word counts.
		options = append(options, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
		}))
	}
	return options
}

// noToken is not a token of any user. Given user and password, clientv3 would log in
// before it returns, without a bound on how long. With a token that etcd refuses,
// each call logs in if need be, within its own time.
const noToken = "none"

// CheckBatching asks every endpoint of all clients for its version and returns how
// operations on accounts may travel: [Nested] once all have answered and none is too
// old for that, else [Single]. An etcd in this process has no endpoints and is new
// enough. It logs a warning for endpoints with known faults in what mete relies on:
// permissions inside nested transactions, and watches. It returns the first error of
// an endpoint.
func CheckBatching(ctx context.Context, log zerolog.Logger, clients ...*clientv3.Client) (Batching, error) {
	var first error
	batching := Nested
	for _, c := range clients {
		for _, e := range c.Endpoints() {
			fit, err := checkEndpoint(ctx, log, c, e)
			if !fit {
				batching = Single
			}
			if first == nil {
				first = err
			}
		}
	}
	return batching, first
}

// checkEndpoint reports whether an endpoint says that its version is supported.
func checkEndpoint(ctx context.Context, log zerolog.Logger, c *clientv3.Client, endpoint string) (bool, error) {
	s, err := c.Status(ctx, endpoint)
	if err != nil {
		return false, fmt.Errorf("ask %s for its version: %w", endpoint, err)
	}
	if !supported(s.Version) {
		log.Warn().Str("endpoint", endpoint).Str("version", s.Version).
			Msg("etcd is older than 3.5.33, 3.6.14 or 3.7.1 and has known faults; upgrade it")
		return false, nil
	}
	return true, nil
}

// supported reports whether an etcd version is at least 3.5.33, 3.6.14 or 3.7.1.
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

// randomID returns n random bytes in hex.
func randomID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
