package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func serveCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service",
		Long: `Run the service.

Settings come from flags, METE_ variables, the file of --config and defaults; the first of them that says something holds.
SIGTERM and SIGINT stop it in order, which takes drain-delay and up to 25 s more; a second one ends it at once.
SIGHUP rereads the TLS files and opens the file of usage events again.`,
		Args: noArgs,
	}
	src := addFlags(cmd.Flags(), env)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := src.load(env)
		if err == nil {
			err = s.check()
		}
		if err != nil {
			return usageError{err}
		}
		hup, end := make(chan os.Signal, 1), make(chan os.Signal, 2)
		signal.Notify(hup, syscall.SIGHUP)
		signal.Notify(end, syscall.SIGTERM, os.Interrupt)
		defer signal.Stop(hup)
		defer signal.Stop(end)
		debug.SetGCPercent(s.GOGC)
		s.limitMemory(env, os.DirFS("/"))
		return serve(cmd.Context(), s, process{env: env, stderr: cmd.ErrOrStderr(), exit: os.Exit, hup: hup, end: end})
	}
	return cmd
}

// process is what serve has of the process that it runs in.
type process struct {
	env    environment
	stderr io.Writer
	exit   func(code int)
	hup    <-chan os.Signal // reread the TLS files
	end    <-chan os.Signal // stop; the second one at once
}

// serve runs mete until ctx is done, a signal to end has come or a part has
// failed, then stops it in order. It returns nil if it was asked to stop and
// nothing went wrong.
func serve(ctx context.Context, s settings, p process) error {
	level, err := logLevel(s.LogLevel)
	if err != nil {
		return err
	}
	log, gate := newLogger(p.stderr, level, time.Now)
	warn(log, s, p.env)
	log.Info().Int64("limit", s.memory.limit).Str("from", s.memory.source).Int("max-tenants", s.MaxTenants).Int("max-counters", s.MaxCounters).Msg("memory")
	ctx, release := untilSignal(ctx, p.end, p.exit)
	defer release()

	m := newMete(s, log, gate)
	err = m.start(ctx, p)
	switch {
	case err != nil && ctx.Err() != nil:
		err = nil // stopped while it started
	case err == nil:
		select {
		case <-ctx.Done():
			log.Info().Msg("stopping")
		case err = <-m.parts.failed:
			log.Error().Err(err).Msg("a part has failed; stopping")
		}
		m.drain()
	}
	if stopErr := m.parts.stop(); err == nil || errors.Is(stopErr, err) {
		err = stopErr
	} else {
		err = errors.Join(err, stopErr)
	}
	if err == nil {
		log.Info().Msg("stopped")
	}
	return err
}

// untilSignal returns a context that ends with the first signal on end. A second
// one ends the process. release waits for the goroutine behind it.
func untilSignal(ctx context.Context, end <-chan os.Signal, exit func(int)) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range 2 {
			select {
			case <-quit:
				return
			case <-end:
			}
			if ctx.Err() != nil {
				exit(1)
				return
			}
			cancel()
		}
	}()
	return ctx, func() {
		close(quit)
		<-ended
		cancel()
	}
}

// warn tells what is allowed but unwise, or looks like a slip.
func warn(log zerolog.Logger, s settings, env environment) {
	if s.InsecureListen {
		for name, addr := range map[string]string{"grpc-listen": s.GRPCListen, "admin-listen": s.AdminListen, "peer-listen": s.PeerListen} {
			if addr != "" && s.TLSCert == "" && !isLocal(addr) {
				log.Warn().Str(name, addr).Msg("open beyond this machine without TLS: keep the network closed, or let a mesh do mTLS")
			}
		}
	}
	if isSocket(s.GRPCListen) && s.PeerListen == "" && s.AdvertiseAddress == "" && len(s.EtcdEndpoints) > 0 {
		log.Warn().Str("grpc-listen", s.GRPCListen).Msg("replicas on other machines cannot reach a unix socket, so that settlements cannot be passed on between them and this one: " +
			"with more than one replica set peer-listen, a host and port for the other replicas")
	}
	for _, name := range strayVariables(env) {
		log.Warn().Str("variable", name).Msg("no setting has this name")
	}
}

// strayVariables returns the METE_ variables that no setting reads, without those
// that Kubernetes sets for a service called mete.
func strayVariables(env environment) []string {
	known := []string{"METE_CONFIG"}
	for _, s := range allSettings() {
		known = append(known, s.env())
	}
	var stray []string
	for _, line := range env.Environ() {
		name, value, _ := strings.Cut(line, "=")
		kubernetes := strings.Contains(name, "_SERVICE_") || strings.Contains(name, "_PORT_") || strings.Contains(value, "://")
		if strings.HasPrefix(name, "METE_") && !kubernetes && !slices.Contains(known, name) {
			stray = append(stray, name)
		}
	}
	return stray
}
