package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/meteproject/mete/plan"
)

// env returns an environment with the variables of vars and the host name "host".
func env(vars map[string]string) environment {
	return environment{
		Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		Environ: func() []string {
			var all []string
			for k, v := range vars {
				all = append(all, k+"="+v)
			}
			return all
		},
		Hostname: func() (string, error) { return "host", nil },
	}
}

// load loads settings from a file's text, variables and flags.
func load(t *testing.T, file string, vars map[string]string, args ...string) (settings, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "mete.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	flags := pflag.NewFlagSet("mete", pflag.ContinueOnError)
	src := addFlags(flags, env(vars))
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return src.load(env(vars))
}

// valuesOfSettings returns three values of each setting: for the file, the
// environment and the flag.
func valuesOfSettings() map[string][3]string {
	return map[string][3]string{
		"data-dir":               {"/f", "/e", "/a"},
		"journal":                {"/f", "/e", "off"},
		"name":                   {"f", "e", "a"},
		"grpc-listen":            {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		"admin-listen":           {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		"metrics-listen":         {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		"insecure-listen":        {"true", "false", "true"},
		"peer-listen":            {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		"advertise-address":      {"f:1", "e:2", "a:3"},
		"peer-ca":                {"f", "e", "a"},
		"peer-name":              {"f", "e", "a"},
		"usage-events":           {"/f", "/e", "/a"},
		"etcd-listen":            {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		"etcd-endpoints":         {"[http://f:1, http://g:1]", "http://e:1, http://h:1", "http://a:1,http://b:1"},
		"etcd-ca":                {"f", "e", "a"},
		"etcd-cert":              {"f", "e", "a"},
		"etcd-key":               {"f", "e", "a"},
		"etcd-user":              {"f", "e", "a"},
		"etcd-password-file":     {"f", "e", "a"},
		"etcd-batch":             {"nested", "single", "auto"},
		"tls-cert":               {"f", "e", "a"},
		"tls-key":                {"f", "e", "a"},
		"tls-client-ca":          {"f", "e", "a"},
		"tls-client-san":         {"[f, g]", "e,h", "a,b"},
		"tls-envoy-san":          {"[f, g]", "e,h", "a,b"},
		"tls-app-san":            {"[f, g]", "e,h", "a,b"},
		"tls-replica-san":        {"[f, g]", "e,h", "a,b"},
		"admin-token-file":       {"f", "e", "a"},
		"admin-hosts":            {"[f, g]", "e,h", "a,b"},
		"max-streams":            {"1", "2", "3"},
		"max-connection-age":     {"1m", "2m", "0"},
		"max-connections":        {"1", "2", "3"},
		"max-message-bytes":      {"70000", "80000", "90000"},
		"max-unfinished-bytes":   {"268435457", "268435458", "268435459"},
		"max-request-headers":    {"1", "2", "3"},
		"max-request-headers-kb": {"1", "2", "3"},
		"drain-delay":            {"1s", "2s", "0s"},
		"lease-wait":             {"100ms", "200ms", "400ms"},
		"unavailable-for":        {"1s", "2s", "3s"},
		"refusal-memory":         {"1s", "2s", "3s"},
		"recalls":                {"false", "true", "false"},
		"max-tenants":            {"1", "2", "3"},
		"max-counters":           {"1", "2", "3"},
		"max-new-accounts":       {"1", "2", "3"},
		"unknown-host-status":    {"403", "421", "503"},
		"shadow-mode":            {"true", "false", "true"},
		"max-ratelimit-series":   {"1", "2", "3"},
		"presence-ttl":           {"10s", "20s", "40s"},
		"log-level":              {"debug", "warn", "error"},
		"pprof":                  {"true", "false", "true"},
		"gogc":                   {"100", "200", "300"},
	}
}

// TestPrecedence goes through every setting: each source beats the ones before.
func TestPrecedence(t *testing.T) {
	values := valuesOfSettings()
	for _, s := range allSettings() {
		t.Run(s.name, func(t *testing.T) {
			v, ok := values[s.name]
			if !ok {
				t.Fatal("no row for this setting")
			}
			if s.help == "" {
				t.Error("no help")
			}
			file := s.name + ": " + v[0] + "\n"
			vars := map[string]string{s.env(): v[1]}
			flag := "--" + s.name + "=" + v[2]
			check := func(want origin, text string, got settings, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				if got.origin[s.name] != want {
					t.Errorf("origin %s, want %s", got.origin[s.name], want)
				}
				ref := defaults(env(nil))
				if want != fromDefault {
					if err := parse(strings.Trim(text, "[]"), s.in(&ref)); err != nil {
						t.Fatal(err)
					}
				}
				g, w := reflect.ValueOf(s.in(&got.config)).Elem().Interface(), reflect.ValueOf(s.in(&ref)).Elem().Interface()
				if !reflect.DeepEqual(g, w) {
					t.Errorf("from %s got %v, want %v", want, g, w)
				}
			}
			got, err := load(t, "", nil)
			check(fromDefault, "", got, err)
			got, err = load(t, file, nil)
			check(fromFile, v[0], got, err)
			got, err = load(t, file, vars)
			check(fromEnv, v[1], got, err)
			got, err = load(t, file, vars, flag)
			check(fromFlag, v[2], got, err)
			got, err = load(t, file, map[string]string{s.env(): ""})
			check(fromFile, v[0], got, err)
		})
	}
}

func TestGOGC(t *testing.T) {
	for _, row := range []struct {
		vars map[string]string
		want int
	}{
		{nil, 100},
		{map[string]string{"GOGC": "75"}, 75},
		{map[string]string{"GOGC": "off"}, -1},
		{map[string]string{"GOGC": "75", "METE_GOGC": "150"}, 150},
	} {
		got, err := load(t, "", row.vars)
		if err != nil || got.GOGC != row.want {
			t.Errorf("%v: got %d, %v, want %d", row.vars, got.GOGC, err, row.want)
		}
	}
}

func TestConfigVariable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mete.yaml")
	if err := os.WriteFile(path, []byte("name: from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, "", map[string]string{"METE_CONFIG": path})
	if err != nil || got.Name != "from-file" {
		t.Errorf("got %q, %v", got.Name, err)
	}
	if _, err := load(t, "", nil, "--config", path+".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: got %v", err)
	}
}

func TestStrictFile(t *testing.T) {
	for _, row := range []struct{ file, want string }{
		{"", ""},
		{"# nothing\n", ""},
		{"drain-delay: 0\n", ""},
		{"name: a\ngrpc_listen: x\n", `mete.yaml:2:1: unknown key "grpc_listen"`},
		{"name: a\nname: b\n", "name"},
		{"max-streams: many\n", "mete.yaml:1:14: max-streams: want a whole number"},
		{"max-streams: 1.5\n", "mete.yaml:1:14: max-streams: want a whole number"},
		{"max-streams: \"5\"\n", "mete.yaml:1:14: max-streams: want a whole number"},
		{"drain-delay: 5\n", "mete.yaml:1:14: drain-delay: want a duration such as 300ms, 5s or 10m"},
		{"drain-delay: soon\n", `mete.yaml:1:14: drain-delay: "soon" is not a duration`},
		{"pprof: maybe\n", "mete.yaml:1:8: pprof: want true or false"},
		{"name: 5\n", "mete.yaml:1:7: name: want a string"},
		{"name: [a]\n", "mete.yaml:1:7: name: want a string"},
		{"etcd-endpoints: http://a:1\n", "mete.yaml:1:17: etcd-endpoints: want a list of strings"},
		{"etcd-endpoints: [http://a:1, 7]\n", "etcd-endpoints: item 2: want a string"},
		{"- name\n", "settings are a mapping"},
		{"name: a\n---\nname: b\n", "a second document"},
		{"name: [\n", "mete.yaml"},
	} {
		_, err := load(t, row.file, nil)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%q: %v", row.file, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%q:\n got %v\nwant %s", row.file, err, row.want)
		}
	}
}

func TestBadVariables(t *testing.T) {
	_, err := load(t, "", map[string]string{"METE_MAX_STREAMS": "x", "METE_PPROF": "yes", "METE_DRAIN_DELAY": "5"})
	for _, want := range []string{`METE_MAX_STREAMS: "x" is not a whole number`, `METE_PPROF: "yes" is neither`, `METE_DRAIN_DELAY: "5" is not a duration`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestStrayVariables(t *testing.T) {
	got := strayVariables(env(map[string]string{
		"METE_DATADIR": "x", "METE_DATA_DIR": "x", "METE_CONFIG": "x", "OTHER": "x",
		"METE_SERVICE_HOST": "10.0.0.1", "METE_PORT": "tcp://10.0.0.1:9001", "METE_PORT_9001_TCP_ADDR": "10.0.0.1",
	}))
	if !reflect.DeepEqual(got, []string{"METE_DATADIR"}) {
		t.Errorf("got %v", got)
	}
}

// A checked is arguments, and what is said of them.
type checked struct {
	args []string
	want string // "": good
}

func TestCheck(t *testing.T) {
	etcd := "--etcd-endpoints=https://etcd:2379"
	mustCheck(t, []checked{
		{nil, ""},
		{[]string{"--grpc-listen=[::1]:0", "--admin-listen=localhost:0", "--metrics-listen=127.0.0.1:0"}, ""},
		{[]string{"--refusal-memory=61s"}, "refusal-memory 1m1s must be at most 1m0s, or a tenant goes on being refused"},
		{[]string{"--refusal-memory=60s"}, ""},
		{[]string{"--refusal-memory=0"}, "or every refusal asks etcd again"},
		{[]string{"--unavailable-for=100ms"}, "unavailable-for 100ms must be at least lease-wait 300ms"},
		{[]string{"--lease-wait=0"}, "lease-wait 0s must be above 0"},
		{[]string{"--presence-ttl=1s"}, "presence-ttl 1s must be at least 5s"},
		{[]string{"--presence-ttl=30m"}, "below 30m0s"},
		{[]string{"--presence-ttl=5500ms"}, "whole seconds"},
		{[]string{"--drain-delay=-1s"}, "drain-delay -1s is negative"},
		{[]string{"--drain-delay=0"}, ""},
		{[]string{"--max-connection-age=1s"}, "max-connection-age 1s must be 0"},
		{[]string{"--max-connection-age=0"}, ""},
		{[]string{"--max-streams=0"}, "max-streams 0"},
		{[]string{"--unknown-host-status=200"}, "unknown-host-status 200"},
		{[]string{"--unknown-host-status=499"}, "unknown-host-status 499"},
		{[]string{"--max-tenants=-1"}, "max-tenants -1"},
		{[]string{"--max-counters=-1"}, "max-counters -1"},
		{[]string{"--max-new-accounts=-1"}, "max-new-accounts -1"},
		{[]string{"--max-tenants=0", "--max-counters=0", "--max-new-accounts=0"}, ""},
		{[]string{"--max-ratelimit-series=0"}, "max-ratelimit-series 0 must be from 1 to 1000000"},
		{[]string{"--max-ratelimit-series=1000001"}, "max-ratelimit-series 1000001 must be from 1 to 1000000"},
		{[]string{"--max-ratelimit-series=1000000"}, ""},
		{[]string{"--gogc=0"}, "gogc 0"},
		{[]string{"--log-level=loud"}, `log-level: "loud"`},
		{[]string{"--name=a b"}, `name "a b"`},
		{[]string{"--data-dir="}, "data-dir is empty"},
		{[]string{"--grpc-listen=0.0.0.0:9001"}, "grpc-listen 0.0.0.0:9001 is beyond loopback without TLS: give tls-cert and tls-key, or allow it with insecure-listen"},
		{[]string{"--grpc-listen=:9001"}, "beyond loopback without TLS"},
		{[]string{"--grpc-listen=example.com:9001"}, "beyond loopback without TLS"},
		{[]string{"--grpc-listen=0.0.0.0:9001", "--insecure-listen"}, ""},
		{[]string{"--grpc-listen=0.0.0.0:9001", "--tls-cert=c", "--tls-key=k"}, ""},
		{[]string{"--admin-listen=0.0.0.0:9002"}, "admin-listen 0.0.0.0:9002 is beyond loopback"},
		{[]string{"--metrics-listen=0.0.0.0:9003", "--tls-cert=c", "--tls-key=k"}, "metrics and probes are always plain HTTP"},
		{[]string{"--etcd-listen=0.0.0.0:2379"}, "etcd-listen 0.0.0.0:2379 is beyond loopback"},
		{[]string{"--grpc-listen=9001"}, `grpc-listen "9001" must be host:port`},
		{[]string{"--grpc-listen=127.0.0.1:http"}, "the port must be a number"},
		{[]string{"--grpc-listen=127.0.0.1:9003"}, "grpc-listen and metrics-listen are both 127.0.0.1:9003"},
		{[]string{"--tls-cert=c"}, "tls-cert and tls-key are a pair"},
		{[]string{"--tls-client-ca=c"}, "tls-client-ca needs tls-cert"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-client-san=*"}, "tls-client-san needs tls-client-ca"},
		{[]string{etcd, "--etcd-listen=127.0.0.1:2380"}, "etcd-listen has no effect with etcd-endpoints"},
		{[]string{"--etcd-user=u"}, "etcd-user needs etcd-endpoints"},
		{[]string{etcd, "--etcd-user=u"}, "etcd-user and etcd-password-file go together"},
		{[]string{etcd, "--etcd-cert=u"}, "etcd-cert and etcd-key are a pair"},
		{[]string{"--etcd-endpoints=http://etcd:2379", "--etcd-ca=c"}, "entry 1 is not https"},
		{[]string{"--etcd-endpoints=etcd:2379"}, "entry 1 must be like https://host:2379"},
		{[]string{"--etcd-endpoints=unix:///run/etcd.sock"}, ""},
	})
}

func TestCheck_F_WhatCallersMay(t *testing.T) {
	mustCheck(t, []checked{
		{[]string{"--max-connections=0"}, "max-connections 0"},
		{[]string{"--max-message-bytes=1000"}, "max-message-bytes 1000"},
		{[]string{"--max-unfinished-bytes=268435455"}, "max-unfinished-bytes 268435455"},
		{[]string{"--max-request-headers=0"}, "max-request-headers 0"},
		{[]string{"--max-request-headers-kb=0"}, "max-request-headers-kb 0"},
		{[]string{"--admin-listen=0.0.0.0:9002", "--insecure-listen"}, "callers must prove who they are"},
		{[]string{"--admin-listen=0.0.0.0:9002", "--tls-cert=c", "--tls-key=k"}, "callers must prove who they are"},
		{[]string{"--admin-listen=0.0.0.0:9002", "--insecure-listen", "--admin-token-file=t"}, ""},
		{[]string{"--admin-hosts=a:9002"}, "must be a host without a port"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-app-san=*"}, "tls-app-san needs tls-client-ca"},
		{[]string{"--tls-cert=c", "--tls-key=k", "--tls-client-ca=a", "--tls-replica-san=a,"}, "tls-replica-san has an empty pattern"},
	})
}

func TestCheck_A26_HowReplicasReachEachOther(t *testing.T) {
	mustCheck(t, []checked{
		{[]string{"--advertise-address=mete-0"}, "must be a host and a port"},
		{[]string{"--advertise-address=:9001"}, "must be a host and a port"},
		{[]string{"--advertise-address=mete-0:0"}, "must be a host and a port"},
		{[]string{"--advertise-address=[fd00::1]:9001"}, ""},
		{[]string{"--peer-ca=c"}, "peer-ca needs tls-cert"},
		{[]string{"--peer-name=n"}, "peer-name needs tls-cert"},
	})
}

func mustCheck(t *testing.T, rows []checked) {
	t.Helper()
	for _, row := range rows {

		s, err := load(t, "", nil, row.args...)
		if err != nil {
			t.Fatal(err)
		}
		err = s.check()
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%v: %v", row.args, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%v:\n got %v\nwant %s", row.args, err, row.want)
		}
	}
}

// runMete runs a command line.
func runMete(vars map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, env(vars), &out, &errs)
	return code, out.String(), errs.String()
}

func TestConfigPrintMasksSecrets(t *testing.T) {
	for _, output := range []string{"yaml", "json"} {
		code, out, errs := runMete(map[string]string{"METE_ETCD_ENDPOINTS": "https://root:hunter2@etcd:2379"}, "config", "print", "-o", output)
		if code != 2 || strings.Contains(out+errs, "hunter2") || strings.Contains(out+errs, "root:") {
			t.Errorf("%s: code %d, %s%s", output, code, out, errs)
		}
		if !strings.Contains(out, "https://****@etcd:2379") {
			t.Errorf("%s: the endpoint is not shown: %s", output, out)
		}
	}
}

// A secret that makes an endpoint unreadable is a secret all the same.
func TestConfigPrintMasksSecretsOfBadEndpoints(t *testing.T) {
	for _, endpoint := range []string{
		"https://root:hun%zzter2@etcd:2379", "https://root:hun#ter2@etcd:2379", "root:hunter2@etcd:2379",
		"https://root:1/hunter2@etcd:2379", "https://root:hun@ter2@etcd:2379", "https://etcd:2379,https://root:hun%zzter2@etcd:2379",
	} {
		_, out, errs := runMete(map[string]string{"METE_ETCD_ENDPOINTS": endpoint}, "config", "print")
		if strings.Contains(out+errs, "ter2") || strings.Contains(out+errs, "root") || !strings.Contains(out, "****@etcd:2379") {
			t.Errorf("%s: %s%s", endpoint, out, errs)
		}
	}
	if _, _, errs := runMete(map[string]string{"METE_LEASE_WAITT": "1s"}, "config", "print"); errs != "mete: no setting reads the variable METE_LEASE_WAITT\n" {
		t.Errorf("of a misspelled variable: %q", errs)
	}
	_, out, _ := runMete(map[string]string{"METE_ETCD_ENDPOINTS": "unix:///run/a@b", "METE_NAME": "a@b"}, "config", "print")
	if !strings.Contains(out, "unix:///run/a@b") || !strings.Contains(out, "name: a@b") {
		t.Errorf("what is not a secret is masked: %s", out)
	}
}

func TestConfigPrint(t *testing.T) {
	vars := map[string]string{"METE_NAME": "n1", "METE_ETCD_ENDPOINTS": "http://a:1,http://b:1"}
	code, out, errs := runMete(vars, "config", "print", "--drain-delay=7s")
	if code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	for _, want := range []string{"name: n1 # env\n", "drain-delay: 7s # flag\n", "max-streams: 4096 # default\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// What is printed is a file that says the same.
	again, err := load(t, out, nil)
	if err == nil {
		err = again.check()
	}
	if err != nil || again.Name != "n1" || again.DrainDelay != 7*time.Second || len(again.EtcdEndpoints) != 2 {
		t.Errorf("read again: %v, %+v", err, again.config)
	}

	code, out, _ = runMete(vars, "config", "print", "-o", "json")
	var got map[string]struct {
		Value  any
		Origin string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	if len(got) != len(allSettings()) || got["name"].Value != "n1" || got["name"].Origin != "env" || got["lease-wait"].Value != "300ms" {
		t.Errorf("got %v", got)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--no-such-flag"},
		{"serve", "--grpc-listen=0.0.0.0:1"},
		{"config", "print", "-o", "toml"},
		{"config", "print", "--refusal-memory=2m"},
		{"version", "-o", "xml"},
		{"no-such-command"},
		{"serve", "argument"},
	} {
		if code, _, errs := runMete(nil, args...); code != 2 || errs == "" {
			t.Errorf("%v: code %d, %q", args, code, errs)
		}
	}
}

// The word for a build without a version is metectl's.
func TestVersion(t *testing.T) {
	code, out, _ := runMete(nil, "version")
	if code != 0 || !strings.HasPrefix(out, "mete ") {
		t.Errorf("code %d, %q", code, out)
	}
	code, out, _ = runMete(nil, "version", "-o", "json")
	var b buildInfo
	if err := json.Unmarshal([]byte(out), &b); code != 0 || err != nil || b.Version == "" || b.Zones != plan.ZonesVersion() || strings.ContainsAny(b.Version, "()") || b.Go == "" {
		t.Errorf("code %d, %q, %v", code, out, err)
	}
}
