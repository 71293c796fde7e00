package obs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallLog writes one line for each call that a gRPC server has answered: method, code, reason, duration, ids. Requests
// and metadata are not logged. Make it the outermost interceptor, so that it sees what the client gets.
type CallLog struct {
	// Logger gets the lines; slog.Default() when nil.
	Logger *slog.Logger
	// Observe, if set, is called for each call too.
	Observe func(method string, code codes.Code, took time.Duration)
}

// Unary logs unary calls.
func (c CallLog) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		started := time.Now()
		ctx, notes := withNotes(ctx)
		notes.add(idsOf(req)...)
		resp, err := next(ctx, req)
		c.log(ctx, info.FullMethod, err, time.Since(started), notes)
		return resp, err
	}
}

// Stream logs streams, at their end.
func (c CallLog) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		started := time.Now()
		ctx, notes := withNotes(ss.Context())
		err := next(srv, &notedStream{ServerStream: ss, ctx: ctx, notes: notes})
		c.log(ctx, info.FullMethod, err, time.Since(started), notes)
		return err
	}
}

func (c CallLog) log(ctx context.Context, method string, err error, took time.Duration, notes *notes) {
	code := status.Code(err)
	if c.Observe != nil {
		c.Observe(method, code, took)
	}
	logger, level := c.logger(), levelOf(method, code)
	if !logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("code", code.String()),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	}
	if reason := reasonOf(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if err != nil {
		attrs = append(attrs, slog.String("message", status.Convert(err).Message()))
	}
	logger.LogAttrs(ctx, level, "call", append(attrs, notes.all()...)...)
}

func (c CallLog) logger() *slog.Logger {
	if c.Logger != nil {
		return c.Logger
	}
	return slog.Default()
}

// levelOf keeps polling clients out of the log: a read that succeeded, or that its caller gave up, is for debugging.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Canceled:
		if isRead(method) {
			return slog.LevelDebug
		}
		return slog.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.ResourceExhausted:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}

func isRead(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, prefix := range []string{"Get", "List", "Watch", "Stream", "Explain", "Check", "Fetch", "SyncSite"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// notes are attributes that a call collects on its way.
type notes struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

type notesKey struct{}

func withNotes(ctx context.Context) (context.Context, *notes) {
	n := &notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// Annotate adds attributes to the line that CallLog will write for the call of ctx; without a call it does nothing.
// A key that is there already is replaced.
func Annotate(ctx context.Context, attrs ...slog.Attr) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		n.add(attrs...)
	}
}

func (n *notes) add(attrs ...slog.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
next:
	for _, a := range attrs {
		for i := range n.attrs {
			if n.attrs[i].Key == a.Key {
				n.attrs[i] = a
				continue next
			}
		}
		n.attrs = append(n.attrs, a)
	}
}

func (n *notes) all() []slog.Attr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]slog.Attr(nil), n.attrs...)
}

// idsOf finds the ids that a request carries in fields of the usual names.
func idsOf(req any) []slog.Attr {
	var out []slog.Attr
	add := func(key, value string) {
		if value != "" {
			out = append(out, slog.String(key, value))
		}
	}
	if r, ok := req.(interface{ GetMachineId() string }); ok {
		add("machine_id", r.GetMachineId())
	}
	if r, ok := req.(interface{ GetOperationId() string }); ok {
		add("operation_id", r.GetOperationId())
	}
	if r, ok := req.(interface{ GetRunId() string }); ok {
		add("operation_id", r.GetRunId())
	}
	if r, ok := req.(interface{ GetCommandId() string }); ok {
		add("command_id", r.GetCommandId())
	}
	if r, ok := req.(interface{ GetAgentId() string }); ok {
		add("agent_id", r.GetAgentId())
	}
	if r, ok := req.(interface{ GetRequestId() string }); ok {
		add("request_id", r.GetRequestId())
	}
	return out
}

// notedStream notes the ids of the first message, which for a server stream is the request.
type notedStream struct {
	grpc.ServerStream
	ctx   context.Context
	notes *notes
	once  sync.Once
}

func (s *notedStream) Context() context.Context { return s.ctx }

func (s *notedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.once.Do(func() { s.notes.add(idsOf(m)...) })
	}
	return err
}
