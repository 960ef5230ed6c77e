// Package zaplog lets etcd, which logs to zap, write to zerolog.
package zaplog

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A Core writes what etcd logs to a zerolog logger, from a minimum level on that
// can be raised: a stop of etcd is noisy by nature.
type Core struct {
	log    zerolog.Logger
	min    *atomic.Int32
	muted  []string
	fields []zapcore.Field
}

// New returns a core that writes entries of level lowest and above, but for those
// with a muted message.
func New(log zerolog.Logger, lowest zapcore.Level, muted ...string) *Core {
	c := &Core{log: log, min: new(atomic.Int32), muted: muted}
	c.Raise(lowest)
	return c
}

// Logger returns a zap logger that writes to c.
func (c *Core) Logger() *zap.Logger { return zap.New(c) }

// Raise sets the lowest level that is still written, also for loggers made
// before.
func (c *Core) Raise(lowest zapcore.Level) { c.min.Store(int32(lowest)) }

// Enabled implements [zapcore.LevelEnabler].
func (c *Core) Enabled(l zapcore.Level) bool { return int32(l) >= c.min.Load() }

// With implements [zapcore.Core].
func (c *Core) With(fields []zapcore.Field) zapcore.Core {
	all := append(append([]zapcore.Field(nil), c.fields...), fields...)
	return &Core{log: c.log, min: c.min, muted: c.muted, fields: all}
}

// Check implements [zapcore.Core].
func (c *Core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !slices.Contains(c.muted, e.Message) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements [zapcore.Core]. It never ends the process: zap does that.
func (c *Core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	event := c.log.WithLevel(level(e.Level))
	for _, f := range c.fields {
		add(event, f)
	}
	for _, f := range fields {
		add(event, f)
	}
	event.Msg(e.Message)
	return nil
}

// Sync implements [zapcore.Core].
func (c *Core) Sync() error { return nil }

func level(l zapcore.Level) zerolog.Level {
	switch {
	case l <= zapcore.DebugLevel:
		return zerolog.DebugLevel
	case l == zapcore.InfoLevel:
		return zerolog.InfoLevel
	case l == zapcore.WarnLevel:
		return zerolog.WarnLevel
	}
	return zerolog.ErrorLevel
}

func add(e *zerolog.Event, f zapcore.Field) {
	switch f.Type { //nolint:exhaustive // the rest goes through zap's own encoder
	case zapcore.SkipType:
	case zapcore.StringType:
		e.Str(f.Key, f.String)
	case zapcore.BoolType:
		e.Bool(f.Key, f.Integer == 1)
	case zapcore.Int64Type, zapcore.Int32Type, zapcore.Int16Type, zapcore.Int8Type:
		e.Int64(f.Key, f.Integer)
	case zapcore.DurationType:
		e.Dur(f.Key, time.Duration(f.Integer))
	case zapcore.ErrorType:
		if err, ok := f.Interface.(error); ok {
			e.AnErr(f.Key, err)
		}
	default:
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for k, v := range m.Fields {
			e.Interface(k, v)
		}
	}
}
