package zaplog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/meteproject/mete/store/internal/zaplog"
)

func TestEntriesReachZerolog(t *testing.T) {
	var b strings.Builder
	c := zaplog.New(zerolog.New(&b), zapcore.WarnLevel, "noise")
	l := c.Logger().With(zap.String("member", "m0"))
	l.Info("too low")
	l.Error("noise")
	l.Warn("slow", zap.Duration("took", time.Second), zap.Int("n", 3), zap.Bool("ok", true),
		zap.Error(errors.New("why")), zap.Strings("urls", []string{"a", "b"}))
	c.Raise(zapcore.FatalLevel)
	l.Error("at the end")
	want := `{"level":"warn","member":"m0","took":1000,"n":3,"ok":true,"error":"why","urls":["a","b"],"message":"slow"}` + "\n"
	if b.String() != want {
		t.Errorf("got %swant %s", b.String(), want)
	}
}
