package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// toJournal reports whether w is the stream that systemd has connected to the journal (JOURNAL_STREAM in
// systemd.exec(5)).
func toJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// priorities are the prefixes of lines by which the journal sets their priority (sd-daemon(3)), the most urgent first.
var priorities = []struct {
	from   slog.Level
	prefix string
}{{slog.LevelError, "<3>"}, {slog.LevelWarn, "<4>"}, {slog.LevelInfo, "<6>"}, {slog.Level(-128), "<7>"}}

// prioritized is a handler that has one for each priority.
type prioritized []slog.Handler

// withPriorities makes a handler of each priority by handlerOf.
func withPriorities(w io.Writer, handlerOf func(io.Writer) slog.Handler) slog.Handler {
	out := prioritized{}
	for _, p := range priorities {
		out = append(out, handlerOf(prefixed{w, p.prefix}))
	}
	return out
}

func (p prioritized) of(level slog.Level) slog.Handler {
	for i, h := range p {
		if level >= priorities[i].from {
			return h
		}
	}
	return p[len(p)-1]
}

// Enabled implements slog.Handler.
func (p prioritized) Enabled(ctx context.Context, l slog.Level) bool { return p.of(l).Enabled(ctx, l) }

// Handle implements slog.Handler.
func (p prioritized) Handle(ctx context.Context, r slog.Record) error {
	return p.of(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (p prioritized) WithAttrs(attrs []slog.Attr) slog.Handler {
	return p.each(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (p prioritized) WithGroup(name string) slog.Handler {
	return p.each(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (p prioritized) each(change func(slog.Handler) slog.Handler) slog.Handler {
	out := prioritized{}
	for _, h := range p {
		out = append(out, change(h))
	}
	return out
}

// prefixed writes each line behind a prefix.
type prefixed struct {
	w      io.Writer
	prefix string
}

// Write implements io.Writer. Its argument is one line.
func (p prefixed) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
