// Package obs sets up logging: slog with secrets masked in every line, and one line for each gRPC call.
package obs

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/ingot-metal/ingot/internal/obs/redact"
)

// LogConfig configures the log.
type LogConfig struct {
	// Level is debug, info, warn or error; info when empty.
	Level string `yaml:"level"`
	// Format is text or json; text when empty.
	Format string `yaml:"format"`
}

// Check returns one error for each field that cannot be used, by its YAML name.
func (c LogConfig) Check() map[string]error {
	out := map[string]error{}
	if _, err := c.level(); err != nil {
		out["level"] = err
	}
	if c.Format != "" && c.Format != "text" && c.Format != "json" {
		out["format"] = fmt.Errorf("%q is neither text nor json", c.Format)
	}
	return out
}

func (c LogConfig) level() (slog.Level, error) {
	var l slog.Level
	if c.Level == "" {
		return l, nil
	}
	if err := l.UnmarshalText([]byte(c.Level)); err != nil {
		return l, fmt.Errorf("%q is none of debug, info, warn, error", c.Level)
	}
	return l, nil
}

// NewLogger makes a logger that writes one line for each record to w and masks secrets twice: values whose key names
// a secret, and whatever looks like one in the finished line, be it in a message, an error or a dump. Lines to the
// journal have their priority in front.
func NewLogger(w io.Writer, c LogConfig) (*slog.Logger, error) {
	level, err := c.level()
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: maskKeys}
	var handlerOf func(io.Writer) slog.Handler
	switch c.Format {
	case "", "text":
		handlerOf = func(w io.Writer) slog.Handler { return slog.NewTextHandler(redactingWriter{w}, opts) }
	case "json":
		handlerOf = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(redactingWriter{w}, opts) }
	default:
		return nil, fmt.Errorf("log format %q is neither text nor json", c.Format)
	}
	if toJournal(w) {
		return slog.New(withPriorities(w, handlerOf)), nil
	}
	return slog.New(handlerOf(w)), nil
}

func maskKeys(_ []string, a slog.Attr) slog.Attr {
	if redact.Key(a.Key) {
		return slog.String(a.Key, redact.Mask)
	}
	return a
}

// redactingWriter relies on slog's handlers, which write each record whole.
type redactingWriter struct{ w io.Writer }

func (r redactingWriter) Write(p []byte) (int, error) {
	s := redact.Bytes(p)
	if _, err := r.w.Write(s); err != nil {
		return 0, err
	}
	return len(p), nil
}
