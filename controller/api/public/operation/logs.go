package operation

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/validate"
)

type logRequest struct {
	operationID string
	machineID   string
	after       int64
	noFollow    bool
}

// maySeeConsole: a serial console shows output that was not meant for a log.
func maySeeConsole(ctx context.Context) bool {
	c, ok := call.Caller(ctx)
	return !ok || c.Scope >= access.ScopeAdmin
}

// logs sends the stored log after a chunk and follows it until the operation has ended and nothing more has come for a
// while: agents send the last of their output beside the result, not before it.
func (s *Server) logs(ctx context.Context, r logRequest, send func(*baremetalv1.LogChunk) error) error {
	if r.after < 0 {
		return validate.Fault("after_seq", "not negative")
	}
	op, err := s.stores.OperationQueries.GetOperation(ctx, r.operationID)
	if err != nil {
		return err
	}
	r.machineID = op.GetMachineId()
	ctx, end := s.Streaming(ctx)
	out := service.NewSender(send, s.Clock, s.Config.SendTimeout)
	return end(out.Finish(ctx, s.followLog(ctx, r, out)))
}

func (s *Server) followLog(ctx context.Context, r logRequest, out *service.Sender[*baremetalv1.LogChunk]) error {
	p := service.Pacer{Base: s.Base}
	var endedAt time.Time
	for {
		changed := p.Mark()
		last := r.noFollow || !endedAt.IsZero() && s.Clock.Now().Sub(endedAt) >= s.Config.LogGrace
		err := s.StillInside(ctx, r.machineID)
		if err != nil {
			return err
		}
		if r.after, err = s.drainLog(ctx, r, out); err != nil || last {
			return err
		}
		if endedAt.IsZero() {
			op, err := s.stores.OperationQueries.GetOperation(ctx, r.operationID)
			if err != nil {
				return err
			}
			if finished(op) {
				endedAt = s.Clock.Now()
			}
		}
		if err := p.Wait(ctx, changed); err != nil {
			return err
		}
	}
}

// drainLog sends the stored chunks and returns the number of the last one.
func (s *Server) drainLog(
	ctx context.Context,
	r logRequest,
	out *service.Sender[*baremetalv1.LogChunk],
) (int64, error) {
	for {
		page, err := s.stores.Logs.LogsOf(ctx, r.operationID, r.after, s.Config.PageRows)
		if err != nil {
			return r.after, err
		}
		for _, c := range page {
			if c.GetStream() == sessionstore.ConsoleStream && !maySeeConsole(ctx) {
				r.after = c.GetSeq()
				continue
			}
			if err := out.Send(ctx, c); err != nil {
				return r.after, err
			}
			r.after = c.GetSeq()
		}
		if len(page) < int(s.Config.PageRows) {
			return r.after, nil
		}
	}
}
