package obs_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/ingot-metal/ingot/internal/obs"
)

const marked = "ingotb_MARKED-0123456789abcdefghijklmnopqrstuvw"

type nested struct{ Inner map[string]any }

func TestNoWayIntoTheLog(t *testing.T) {
	bearer := "Bearer " + marked
	for _, format := range []string{"text", "json"} {
		var buf bytes.Buffer
		log, err := obs.NewLogger(&buf, obs.LogConfig{Format: format, Level: "debug"})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("got " + bearer)
		log.Info("x", "error", fmt.Errorf("call: %w", errors.New(bearer)))
		log.Info("x", "metadata", metadata.Pairs("authorization", bearer))
		log.Info("x", "any", nested{map[string]any{"h": []byte(bearer), "s": []string{marked}}})
		log.Info("x", slog.Group("request", slog.Group("headers", slog.String("Authorization", "opaque-MARKED"))))
		log.With("token", "opaque-MARKED").WithGroup("g").Info("x", "password", "opaque-MARKED")
		log.Debug("x", "url", "postgres://u:MARKED@h/db")
		if strings.Contains(buf.String(), "MARKED") {
			t.Errorf("%s:\n%s", format, buf.String())
		}
		if got := strings.Count(buf.String(), "\n"); got != 7 {
			t.Errorf("%s: %d lines:\n%s", format, got, buf.String())
		}
	}
}

func TestLevelsAndFormats(t *testing.T) {
	var buf bytes.Buffer
	log, err := obs.NewLogger(&buf, obs.LogConfig{Level: "warn", Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "machine_id", "m-1")
	if got := buf.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"machine_id":"m-1"`) {
		t.Errorf("%s", got)
	}
	for _, bad := range []obs.LogConfig{{Level: "loud"}, {Format: "xml"}} {
		if _, err := obs.NewLogger(&buf, bad); err == nil || len(bad.Check()) != 1 {
			t.Errorf("%+v: %v, %v", bad, err, bad.Check())
		}
	}
	if problems := (obs.LogConfig{}).Check(); len(problems) != 0 {
		t.Errorf("the zero value: %v", problems)
	}
}
