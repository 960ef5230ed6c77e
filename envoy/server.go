package envoy

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"hash"
	"runtime/debug"
	"sync"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
)

// Options are what a Server is made of. Zero means the default that the comment
// names.
type Options struct {
	Decider Decider          // required
	Settler Settler          // required
	Now     func() time.Time // required: this process's clock
	Log     zerolog.Logger   // nowhere

	TLS *tls.Config // none: plain text
	// Permits is asked once for each connection with TLS, and returns what its peer may
	// call: services by their full names. Other calls are PermissionDenied. Nil: everything.
	Permits func(tls.ConnectionState) func(service string) bool

	// PartitionSecret makes the partition keys of the RateLimit fields, which
	// tell apart the limits of one name on several nodes of a path. It must be
	// the same on all replicas. None: of limits of one name only the one nearest
	// to its end is sent.
	PartitionSecret []byte

	// UnknownHostStatus is the HTTP status of requests that no app is for, one for which
	// IsRefusal holds: 404.
	UnknownHostStatus int

	// MaxConcurrentStreams is per connection: 4096. It must not be less than that
	// of Envoy's cluster, or cold connections refuse calls.
	MaxConcurrentStreams uint32
	// Workers are the goroutines that run calls: 256, or calls in flight.
	Workers uint32
	// MaxMessage is the largest message that is taken, in bytes: 64 MiB. It must be more
	// than what Envoy buffers of a body for ext_authz, and of its access log. Messages of
	// services that are not Envoy's, and compressed ones, are bounded by 4 MiB.
	MaxMessage int
	// MaxUnfinished bounds the memory, in bytes, of messages that have begun to come and
	// are not whole: 256 MiB in all, and half of it for each connection. Connections that
	// take more are closed, the one that takes most first.
	MaxUnfinished int
	// MaxRequestHeaders and MaxRequestHeaderBytes are what Envoy takes of a request's
	// headers, mete's included: 100 and 60 KiB, its max_headers_count and
	// max_request_headers_kb. What says who calls is always among them, or the request is
	// refused with 431; the rest is left out where there is no room.
	MaxRequestHeaders, MaxRequestHeaderBytes int
	// MaxConnections is how many connections may be open: 10,000. One beyond is closed.
	MaxConnections int
	// MaxConnectionAge spreads connections over new replicas: 5 min, below 0
	// never. MaxConnectionGrace is how long calls may go on after that: 1 min.
	MaxConnectionAge, MaxConnectionGrace time.Duration

	// Settling is closed once the Settler can settle: it knows no token before it has
	// keys and documents. Log streams are not read until then, and calls of the rate limit
	// service that settle wait as long as they may. Nil: it can from the start.
	Settling <-chan struct{}
	// Closing is closed when the server is about to stop, before GracefulStop: each
	// log stream then ends right after its next batch, so that nothing is lost, or
	// after LogStreamGrace (3 s) if it is silent. Nil: never.
	Closing        <-chan struct{}
	LogStreamGrace time.Duration

	// OnRefused is told of each refused request, before the answer is sent. Both
	// arguments end with the call.
	OnRefused func(context.Context, *authz.Request, *authz.Decision)
	// OnDecided is told how long each decision took.
	OnDecided func(time.Duration)

	Extra []grpc.ServerOption // interceptors and the like; they win
}

// A Server is a gRPC server that answers Envoy. It starts as not serving: see
// SetServing.
type Server struct {
	*grpc.Server

	decider   Decider
	settler   Settler
	now       func() time.Time
	log       zerolog.Logger
	onRefused func(context.Context, *authz.Request, *authz.Decision)
	onDecided func(time.Duration)
	pk        func(node string) [9]byte
	health    *health.Server

	unknown       seldom // requests that no app is for
	unread        seldom // rate limit descriptors that cannot be read in full
	unknownStatus int

	counters counters
	buffers  *buffers
	intake   *intake
	room     room
	settling <-chan struct{} // nil: from the start
	closing  <-chan struct{}
	logGrace time.Duration
	logAge   time.Duration  // after which a log stream ends; 0: never
	readers  sync.WaitGroup // of log streams

	checks sync.Pool // *checkCall
	limits sync.Pool // *limitCall
}

// NewServer returns a server with ext_authz, the rate limit service, the access log
// service, health and reflection. Other services may be registered until Serve is
// called.
func NewServer(o Options) *Server {
	if o.Decider == nil || o.Settler == nil || o.Now == nil {
		panic("envoy: NewServer needs a Decider, a Settler and a clock")
	}
	s := &Server{
		decider: o.Decider, settler: o.Settler, now: o.Now, log: o.Log,
		onRefused: o.OnRefused, onDecided: o.OnDecided,
		pk:     partitionKeys(o.PartitionSecret),
		health: health.NewServer(),

		unknownStatus: orDefault(o.UnknownHostStatus, defaultUnknownHost),

		buffers: &buffers{},
		room:    room{orDefault(o.MaxRequestHeaders, defaultHeaders), orDefault(o.MaxRequestHeaderBytes, defaultHeaderBytes)},

		settling: o.Settling,
		closing:  o.Closing,
		logGrace: orDefault(o.LogStreamGrace, defaultLogGrace),
		logAge:   logAge(&o),
	}
	s.intake = newIntake(&o)
	s.Server = grpc.NewServer(serverOptions(&o, s.buffers, s.intake)...)
	s.RegisterService(s.service(checkService, "Check", s.checkHandler, authv3.File_envoy_service_auth_v3_external_auth_proto.Path()), nil)
	s.RegisterService(s.service(limitService, "ShouldRateLimit", s.limitHandler, ratelimitv3.File_envoy_service_ratelimit_v3_rls_proto.Path()), nil)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: logService,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "StreamAccessLogs", Handler: s.logHandler, ClientStreams: true}},
		Metadata:    accesslogv3.File_envoy_service_accesslog_v3_als_proto.Path(),
	}, nil)
	healthpb.RegisterHealthServer(s.Server, s.health)
	reflection.Register(s.Server)
	s.SetServing(false)
	return s
}

// service describes a service with one unary method. file is the proto file that
// reflection shows.
func (s *Server) service(name, method string, h grpc.MethodHandler, file string) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: name,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: method, Handler: h}},
		Metadata:    file,
	}
}

const (
	// connectionWindow is large enough for a thousand checks on the way; a fixed one also
	// turns off the pings that would measure it. A stream's window is what may lie about
	// unread of each of them; it grows by itself for the rest of a message that is being read.
	connectionWindow = 1 << 20
	streamWindow     = 64 << 10
	// maxMetadata bounds the headers of a call, of which Envoy sends 1 KiB.
	maxMetadata = 64 << 10
	// connectFor is how long a connection may take to say what it is.
	connectFor = 10 * time.Second
	// Envoy's keepalive may be as short as a fifth of a second; grpc's default policy
	// closes such connections, and with that of the log loses what is on its way.
	leastPing = 100 * time.Millisecond
	pingAfter = 30 * time.Second
	pingWait  = 10 * time.Second

	defaultStreams     = 4096
	defaultWorkers     = 256
	defaultMessage     = 64 << 20
	defaultUnfinished  = 256 << 20
	defaultConnections = 10_000
	defaultAge         = 5 * time.Minute
	defaultGrace       = time.Minute

	defaultLogGrace = 3 * time.Second
)

// logAge is how long a log stream may be open: a connection that is cut off at the end
// of its grace would lose the batch on the wire, so streams end by themselves before.
// Envoy opens the next one, on a new connection if this one is not to be used any more.
func logAge(o *Options) time.Duration {
	if o.MaxConnectionAge < 0 {
		return 0
	}
	return orDefault(o.MaxConnectionGrace, defaultGrace) / 2
}

func serverOptions(o *Options, b *buffers, n *intake) []grpc.ServerOption {
	alive := keepalive.ServerParameters{
		Time: pingAfter, Timeout: pingWait,
		MaxConnectionAge:      orDefault(o.MaxConnectionAge, defaultAge),
		MaxConnectionAgeGrace: orDefault(o.MaxConnectionGrace, defaultGrace),
	}
	if o.MaxConnectionAge < 0 {
		alive.MaxConnectionAge = 0
	}
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(b)),
		grpc.MaxConcurrentStreams(orDefault(o.MaxConcurrentStreams, defaultStreams)),
		grpc.NumStreamWorkers(orDefault(o.Workers, defaultWorkers)),
		grpc.MaxRecvMsgSize(orDefault(o.MaxMessage, defaultMessage)),
		grpc.RPCDecompressor(boundedGzip{}), //nolint:staticcheck // a registered one would be that of the whole process, and gRPC's own takes a message of MaxMessage for a few kilobytes
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.ConnectionTimeout(connectFor),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(alive),
	}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	opts = append(opts, grpc.Creds(n.over(secure)))
	if o.TLS != nil && o.Permits != nil {
		opts = append(opts, grpc.InTapHandle(n.tapped))
	}
	return append(opts, o.Extra...)
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// SetServing tells health checks whether calls are welcome.
func (s *Server) SetServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range [...]string{"", checkService, limitService, logService} {
		s.health.SetServingStatus(name, st)
	}
}

// Shutdown tells health checks for good that calls are not welcome any more. It
// stops nothing: drain, then call GracefulStop.
func (s *Server) Shutdown() { s.health.Shutdown() }

// GracefulStop returns when all calls and log streams have ended and all that was
// received of the log is settled. Close Options.Closing before, or log streams keep it
// waiting.
func (s *Server) GracefulStop() {
	s.Server.GracefulStop()
	s.readers.Wait()
}

// partitionKeys returns the function from a node to its partition key, the first
// 9 bytes of HMAC-SHA256; nil without a secret. Node names can be guessed, so a
// bare hash would tell them.
func partitionKeys(secret []byte) func(string) [9]byte {
	if len(secret) == 0 {
		return nil
	}
	secret = append([]byte(nil), secret...)
	type mac struct {
		hash.Hash

		text []byte // of a node, then its code
	}
	pool := &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}
	return func(node string) (key [9]byte) {
		h, _ := pool.Get().(*mac)
		h.Reset()
		h.text = append(h.text[:0], node...)
		_, _ = h.Write(h.text) // a hash never fails
		h.text = h.Sum(h.text[:0])
		copy(key[:], h.text)
		pool.Put(h)
		return key
	}
}

// panicked logs a panic, once and with its stack, and returns the error that
// Envoy sees: never an empty answer, which would allow.
func (s *Server) panicked(method string, p any) error {
	s.counters.panics.Add(1)
	s.log.Error().Str("method", method).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("call panicked; answered INTERNAL")
	return status.Error(codes.Internal, "internal error")
}

// giveBack gives back what a call charged that panicked later, if that still
// works.
func (s *Server) giveBack(d *authz.Decision) {
	defer s.notGivenBack()
	s.decider.GiveBack(s.now(), d)
}

// notGivenBack, when deferred, logs a panic that kept a charge from being given back.
func (s *Server) notGivenBack() {
	if p := recover(); p != nil {
		s.log.Error().Str("panic", fmt.Sprint(p)).Msg("charge of a panicked call could not be given back")
	}
}

// giveDecisionsBack gives back what the app's limits were charged.
func (s *Server) giveDecisionsBack(c *limitCall) {
	for i := range c.decs {
		s.giveBack(&c.decs[i])
	}
}

// giveAllBack gives back what a call was charged that nobody hears the answer of.
func (s *Server) giveAllBack(c *limitCall) {
	s.giveDecisionsBack(c)
	if len(c.asks) > 0 {
		s.giveCountBack(&c.count)
	}
}

// giveCountBack is giveBack for what a domain's rules counted.
func (s *Server) giveCountBack(c *authz.Count) {
	defer s.notGivenBack()
	s.decider.GiveBackCount(s.now(), c)
}

// gone is the answer that nobody hears any more.
func (s *Server) gone(ctx context.Context) error {
	s.counters.gone.Add(1)
	return status.FromContextError(ctx.Err()).Err()
}

func (s *Server) malformed(err error) error {
	s.counters.malformed.Add(1)
	return status.Error(codes.InvalidArgument, err.Error())
}
