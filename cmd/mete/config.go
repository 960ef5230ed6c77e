package main

import (
	"time"
)

// config holds every setting of mete serve. It is the one source of the flags, of
// the environment variables (METE_ and the name in capitals), of the keys of the
// file and of what mete config print shows. Plans are not in it: they live in etcd.
//
// Listen addresses may have port 0; the ports in use are in addresses.json. Those of gRPC,
// the admin API and metrics may be unix sockets: unix:///run/mete/mete.sock.
type config struct {
	DataDir string `name:"data-dir" help:"directory of the embedded etcd, the journal and addresses.json"`
	// Journal may be on a faster or smaller disk than the rest of data-dir.
	Journal string `name:"journal" help:"directory of the journal, from which a killed replica's use is reported when it starts again (default: data-dir/journal); off: such use is lost"`
	Name    string `name:"name" help:"name of this replica, for people (default: the host name)"`

	GRPCListen    string `name:"grpc-listen" help:"address of the gRPC API that Envoy calls: host:port or unix:///path, as the next two"`
	AdminListen   string `name:"admin-listen" help:"address of the admin API"`
	MetricsListen string `name:"metrics-listen" help:"address of metrics and probes, always plain HTTP"`
	// PeerListen is for replicas that each have an Envoy beside them on a unix socket.
	PeerListen string `name:"peer-listen" help:"second address of the gRPC API, for other replicas where grpc-listen is a unix socket (default: none)"`
	// AdvertiseAddress is how what one replica hears of another's requests gets there.
	AdvertiseAddress string `name:"advertise-address" help:"host and port at which other replicas reach peer-listen or else grpc-listen (default: that address, or where it is open on all interfaces this machine's address)"`
	// InsecureListen allows addresses beyond loopback where callers prove
	// nothing and anybody on the way can read and write.
	InsecureListen bool `name:"insecure-listen" help:"allow listening beyond loopback without TLS"`

	EtcdListen       string   `name:"etcd-listen" help:"client address of the embedded etcd: host:port, which everyone on the machine can read and write, or unix:///path, which this user alone can"`
	EtcdEndpoints    []string `name:"etcd-endpoints" help:"addresses of an etcd cluster; none: etcd is embedded"`
	EtcdCA           string   `name:"etcd-ca" help:"file with the certificate authority of the etcd cluster"`
	EtcdCert         string   `name:"etcd-cert" help:"file with the client certificate for the etcd cluster"`
	EtcdKey          string   `name:"etcd-key" help:"file with the key of etcd-cert"`
	EtcdUser         string   `name:"etcd-user" help:"etcd user"`
	EtcdPasswordFile string   `name:"etcd-password-file" help:"file with the password of etcd-user"`
	// EtcdBatch: nested transactions need a server without certain faults.
	EtcdBatch string `name:"etcd-batch" help:"how lease operations travel: nested, 64 in a transaction, single, or auto: by the version of etcd"`

	TLSCert      string   `name:"tls-cert" help:"file with the certificate of the gRPC and admin APIs, which other replicas that are called are shown, too; reread when it changes"`
	TLSKey       string   `name:"tls-key" help:"file with the key of tls-cert"`
	TLSClientCA  string   `name:"tls-client-ca" help:"file with the authority that client certificates must come from"`
	TLSClientSAN []string `name:"tls-client-san" help:"patterns, one of which a name of the client certificate must match; * stands for any run of characters"`
	// AdminTokenFile guards what TLS does not, or not by certificates.
	AdminTokenFile string   `name:"admin-token-file" help:"file with the tokens, one a line, of which callers of the admin API must show one as Authorization: Bearer; reread when it changes"`
	AdminHosts     []string `name:"admin-hosts" help:"hosts, beside loopback ones, that requests for the admin API may name"`

	// Each of these is tls-client-san unless it is set.
	TLSEnvoySAN   []string `name:"tls-envoy-san" help:"patterns of those that may ask as Envoy does, and settle by the access log (default: tls-client-san)"`
	TLSAppSAN     []string `name:"tls-app-san" help:"patterns of those that may use QuotaService and the admin API (default: tls-client-san)"`
	TLSReplicaSAN []string `name:"tls-replica-san" help:"patterns of the other replicas (default: tls-client-san)"`

	PeerCA   string `name:"peer-ca" help:"file with the authority of the other replicas' certificates (default: tls-client-ca, else the system's)"`
	PeerName string `name:"peer-name" help:"name that the other replicas' certificates are for (default: the host of their advertise-address)"`

	// MaxStreams bounds what one Envoy worker may have under way.
	MaxStreams int `name:"max-streams" help:"requests and streams under way on one gRPC connection"`
	// MaxConnections: gRPC has no bound of its own. See openFiles.
	MaxConnections int `name:"max-connections" help:"gRPC connections that are open at once (default: 10000, or half of what the limit of open files allows)"`
	// MaxMessageBytes and MaxUnfinishedBytes bound what a body or a batch of the access log
	// may take of memory.
	MaxMessageBytes    int `name:"max-message-bytes" help:"largest message of Envoy's; max_request_bytes of ext_authz and buffer_size_bytes of the access log must lie below it"`
	MaxUnfinishedBytes int `name:"max-unfinished-bytes" help:"memory of messages that have begun to come and are not whole, of all connections together; one may take half of it"`
	// What Envoy takes of headers, which the headers that mete adds count towards.
	MaxRequestHeaders   int `name:"max-request-headers" help:"headers that Envoy lets a request have, those of mete included: its max_headers_count"`
	MaxRequestHeadersKB int `name:"max-request-headers-kb" help:"the same in KiB: its max_request_headers_kb"`
	// MaxConnectionAge makes Envoys spread over new replicas (P32).
	MaxConnectionAge time.Duration `name:"max-connection-age" help:"age at which a gRPC connection is asked to close; 0: never"`
	DrainDelay       time.Duration `name:"drain-delay" help:"time between turning unready and refusing connections at a stop"`

	// UnknownHostStatus: an error would leave it to Envoy's failure_mode_allow, and the
	// caller chooses the host.
	UnknownHostStatus int `name:"unknown-host-status" help:"HTTP status of the answer to requests whose host no App is for"`

	LeaseWait      time.Duration `name:"lease-wait" help:"how long a request waits for its first lease; two and a half round trips to etcd at least"`
	UnavailableFor time.Duration `name:"unavailable-for" help:"how long on_unavailable decides without waiting after a failed lease request"`
	RefusalMemory  time.Duration `name:"refusal-memory" help:"how long nothing left is remembered"`
	Recalls        bool          `name:"recalls" help:"ask other replicas for units that they have not spent before a request is refused"`
	MaxTenants     int           `name:"max-tenants" help:"recently active tenants kept in memory, and past that those with a document; others share slots of their limits. 0: what has room in a quarter of the memory limit"`
	MaxCounters    int           `name:"max-counters" help:"recently active counters of rate limit descriptors kept in memory, and past that those of the rules' own values; others share slots of their limits. 0: as max-tenants"`
	// MaxNewAccounts bounds what names that somebody makes up cost in etcd.
	MaxNewAccounts int  `name:"max-new-accounts" help:"accounts that names without a document may newly open in a minute on this replica; past it new names share slots of their limits. 0: any number"`
	ShadowMode     bool `name:"shadow-mode" help:"refuse nobody for a limit: quotas of tenants count on past their end, and metrics tell what rules of rate limit domains would have refused"`
	// MaxRatelimitSeries bounds what values in metrics may cost: each series has five lines in a
	// scrape, and takes some 400 bytes of memory for as long as the process runs.
	MaxRatelimitSeries int           `name:"max-ratelimit-series" help:"rules of rate limit domains that metrics show by name; hits of those beyond are counted as (other), by domain"`
	PresenceTTL        time.Duration `name:"presence-ttl" help:"time after which a silent replica's rate shares are divided again"`

	UsageEvents string `name:"usage-events" help:"file to which usage events are appended, a JSON object a line (default: none are written)"`

	LogLevel string `name:"log-level" help:"debug, info, warn or error"`
	Pprof    bool   `name:"pprof" help:"serve /debug/pprof on metrics-listen to loopback callers"`
	// GOGC above 100 was measured to save no processor time here, and to cost more than
	// twice the memory. The runtime collects more often near the memory limit, see memory.go.
	GOGC int `name:"gogc" help:"garbage collection target in percent; -1: off (default: GOGC, else 100)"`
}

// What etcd-batch and journal may say beside what they are about.
const (
	batchAuto, batchNested, batchSingle = "auto", "nested", "single"
	journalOff                          = "off"
)

const defaultEtcdListen = "127.0.0.1:2379"

// defaults returns the settings of a mete serve that is told nothing.
func defaults(env environment) config {
	return config{
		DataDir:             "./mete-data",
		Name:                env.name(),
		GRPCListen:          "127.0.0.1:9001",
		AdminListen:         "127.0.0.1:9002",
		MetricsListen:       "127.0.0.1:9003",
		EtcdListen:          defaultEtcdListen,
		EtcdBatch:           batchAuto,
		MaxStreams:          4096,
		MaxConnections:      mostConnections,
		MaxMessageBytes:     64 << 20,
		MaxUnfinishedBytes:  256 << 20,
		MaxRequestHeaders:   100,
		MaxRequestHeadersKB: 60,
		MaxConnectionAge:    5 * time.Minute,
		DrainDelay:          5 * time.Second,
		UnknownHostStatus:   404,
		LeaseWait:           300 * time.Millisecond,
		UnavailableFor:      5 * time.Second,
		RefusalMemory:       10 * time.Second,
		Recalls:             true,
		MaxNewAccounts:      10_000,
		MaxRatelimitSeries:  10_000,
		PresenceTTL:         30 * time.Second,
		LogLevel:            "info",
		GOGC:                100,
	}
}

// An environment is what a process is started in.
type environment struct {
	Lookup   func(name string) (string, bool)
	Environ  func() []string
	Hostname func() (string, error)
}

func (e environment) name() string {
	host, err := e.Hostname()
	if err != nil || host == "" {
		return "mete"
	}
	return host
}
