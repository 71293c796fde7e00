package agent

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/failure"
)

// statusWriter is a server's stream that can be ended by a last status to the client, while its handler still waits for
// a message. The handler's wait ends with it. A goroutine per stream that only waits for the end would cost a
// controller of many sessions a tenth of its memory.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// closeWithSession ends the stream of a call when its session ends, and sends the agent the reason. The returned
// function undoes that.
func closeWithSession(call context.Context, sess *session.Session) (undo func() bool) {
	stream, ok := grpc.ServerTransportStreamFromContext(call).(statusWriter)
	if !ok {
		panic("agent API: a stream of this server cannot be ended from outside its handler")
	}
	return context.AfterFunc(sess.Context(), func() {
		// It fails when the connection is gone, and then the stream has ended too.
		_ = stream.WriteStatus(failure.ToStatus(failure.From(statusOf(context.Cause(sess.Context())))))
	})
}
