package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/session"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/safetext"
	"github.com/ingot-metal/ingot/internal/task"
)

func grantPublicKey(issuer *ca.Authority) []byte {
	pub, ok := issuer.GrantKey().Public().(ed25519.PublicKey)
	if !ok {
		panic("fleetapi: the grant key is not Ed25519")
	}
	return pub
}

// Events takes an agent's numbered reports and heartbeats. It ends with the session that it belongs to.
func (s *Server) Events(stream grpc.BidiStreamingServer[fleetv1.EventsRequest, fleetv1.EventsResponse]) error {
	who, err := agentOf(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	sess, err := s.sessionOf(who, first.GetHello())
	if err != nil {
		return err
	}
	defer closeWithSession(stream.Context(), sess)()
	err = s.takeEvents(stream, sess)
	if sess.Context().Err() != nil {
		return statusOf(context.Cause(sess.Context()))
	}
	return err
}

func (s *Server) sessionOf(who auth.Agent, h *fleetv1.EventsHello) (*session.Session, error) {
	sess := s.cfg.Sessions.Get(who.ID)
	if h == nil || sess == nil || sess.SessionID != h.GetSessionId() || sess.Epoch != h.GetEpoch() {
		return nil, failure.Aborted("SESSION_UNKNOWN", "open a session on Commands first, and name it")
	}
	return sess, nil
}

func (s *Server) takeEvents(
	stream grpc.BidiStreamingServer[fleetv1.EventsRequest, fleetv1.EventsResponse], sess *session.Session,
) error {
	beats := lockWriter{locked: sess.Locked} // which the hello has said
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sess.Beat(s.cfg.Clock.Now())
		switch m := m.GetMessage().(type) {
		case *fleetv1.EventsRequest_Heartbeat:
			beats.heartbeat(s, sess, m.Heartbeat)
		case *fleetv1.EventsRequest_Event:
			err = task.Apart(sess.Context(), "take event", func(context.Context) error { return s.eventOrWait(sess, m.Event) })
			if err == nil {
				err = stream.Send(&fleetv1.EventsResponse{AckedSeq: m.Event.GetSeq()})
			}
		}
		if err != nil {
			return err
		}
	}
}

// lockWriter stores an agent's lock when it changes. Heartbeats themselves are written by the engine, many at once.
type lockWriter struct{ locked bool }

// heartbeat does not fail: a database that is away for a moment is no reason to cut off every agent.
func (w *lockWriter) heartbeat(s *Server, sess *session.Session, h *fleetv1.Heartbeat) {
	locked := h.GetLockedReason() != ""
	if w.locked == locked {
		return
	}
	err := task.Apart(sess.Context(), "note lock", func(ctx context.Context) error {
		return s.cfg.Store.Sessions.SetAgentLocked(ctx, sess.AgentID, locked)
	})
	if err != nil {
		s.cfg.Logger.Warn("lock not recorded; the next heartbeat tells it again", "agent_id", sess.AgentID, "error",
			err.Error())
		return
	}
	w.locked = locked
}

// eventRetry is how long an event waits for a database that is away.
const eventRetry = 500 * time.Millisecond

// eventOrWait stores an event, and waits for the database where that is away: it must not be lost, and the session has
// an end of its own.
func (s *Server) eventOrWait(sess *session.Session, e *fleetv1.Event) error {
	for {
		err := s.event(sess.Context(), sess, e)
		if err == nil || failure.From(err).Kind != failure.KindUnavailable {
			return err
		}
		select {
		case <-sess.Context().Done():
			return statusOf(context.Cause(sess.Context()))
		case <-s.cfg.Clock.After(eventRetry):
		}
	}
}

// event stores one report. A number that has been seen is acknowledged again and does nothing.
func (s *Server) event(ctx context.Context, sess *session.Session, e *fleetv1.Event) error {
	k := sessionstore.EventKey{AgentID: sess.AgentID, StateID: sess.StateID, Seq: e.GetSeq(), Epoch: sess.Epoch}
	if sess.Role == "installer" {
		k.InstallerOf = sess.MachineID
	}
	now := s.cfg.Clock.Now()
	switch b := e.GetBody().(type) {
	case *fleetv1.Event_Log:
		at := now
		if e.GetTs().IsValid() {
			at = e.GetTs().AsTime()
		}
		if b.Log.GetCommandId() == "" && sess.Role == "site" {
			return s.cfg.Store.Sessions.ConsoleEvent(ctx, k, sess.Site, b.Log.GetOperationId(), b.Log.GetData(), at)
		}
		return s.cfg.Store.Sessions.LogEvent(ctx, k, b.Log.GetCommandId(), streamName(b.Log.GetStream()), b.Log.GetData(), at)
	case *fleetv1.Event_Inventory:
		machine := sess.MachineID
		if sess.Role == "site" {
			machine = b.Inventory.GetMachineId()
			if site, err := s.cfg.Store.Credentials.SiteOfMachine(ctx, machine); err != nil {
				return err
			} else if site != sess.Site {
				s.cfg.Logger.Warn("site agent reports about a machine of another site; dropped", "agent_id", sess.AgentID, "site",
					sess.Site)
				return s.cfg.Store.Sessions.SkipEvent(ctx, k)
			}
		}
		if len(b.Inventory.GetDocument()) > maxInventory {
			s.cfg.Logger.Warn("inventory is too large; dropped", "agent_id", sess.AgentID, "machine_id", machine, "bytes",
				len(b.Inventory.GetDocument()))
			return s.cfg.Store.Sessions.SkipEvent(ctx, k)
		}
		document, err := safetext.JSON(b.Inventory.GetDocument())
		if err != nil {
			s.cfg.Logger.Warn("inventory is not JSON; dropped", "agent_id", sess.AgentID, "machine_id", machine,
				"error", err.Error())
			return s.cfg.Store.Sessions.SkipEvent(ctx, k)
		}
		return s.cfg.Store.Sessions.InventoryEvent(ctx, k, machine, b.Inventory.GetHash(), document, sess.Simulated, now)
	case *fleetv1.Event_Progress:
		if err := s.cfg.Store.Operations.RecordProgress(ctx, sess.AgentID, b.Progress.GetCommandId(), b.Progress.GetPercent(),
			b.Progress.GetMessage(), now); err != nil {
			return err
		}
	case *fleetv1.Event_Report:
		if b.Report.GetKind() == driftReport && sess.Role == "host" {
			fields := b.Report.GetFields()
			return s.cfg.Store.Sessions.DriftEvent(ctx, k, sess.MachineID, shortened(fields["diff"]),
				driftDigest.FindString(fields["digest"]), now)
		}
		if b.Report.GetKind() == raidReport && sess.Role == "host" {
			return s.cfg.Store.Sessions.RAIDEvent(ctx, k, sess.MachineID, faultText(b.Report.GetFields()["fault"]), now)
		}
		if b.Report.GetKind() == evidence.PhoneHomeReport && sess.Role == "site" {
			return s.phoneHome(ctx, k, sess, b.Report.GetFields())
		}
		s.cfg.Logger.Warn("agent reports", "agent_id", sess.AgentID, "machine_id", sess.MachineID, "kind", b.Report.GetKind(),
			"message", b.Report.GetMessage())
	case *fleetv1.Event_Dropped:
		s.cfg.Logger.Warn("agent dropped events over its cap", "agent_id", sess.AgentID, "machine_id", sess.MachineID,
			"dropped", b.Dropped.GetByPriority())
	}
	return s.cfg.Store.Sessions.SkipEvent(ctx, k)
}

// phoneHome keeps what a system without an agent says, and has its operation look at it.
func (s *Server) phoneHome(
	ctx context.Context, k sessionstore.EventKey, sess *session.Session, fields map[string]string,
) error {
	operationID, err := s.cfg.Store.Sessions.PhoneHomeEvent(ctx, k, sess.Site, fields, s.cfg.Clock.Now())
	if err != nil || operationID == "" {
		return err
	}
	_, err = s.cfg.Engine.Handle(ctx, operationID, operation.Evaluate{})
	return err
}

const (
	// maxInventory bounds one inventory, in bytes; a machine with 1,000 disks has a tenth of that.
	maxInventory = 1 << 20
	// maxDrift bounds the difference of one drift report, in bytes.
	maxDrift = 16 << 10
)

const (
	// driftReport is the kind of a report on a configuration that somebody else has changed, raidReport that of one on
	// software RAID.
	driftReport, raidReport = "drift", "raid"
	// mostFault bounds what a report says of a fault, in bytes.
	mostFault = 1 << 10
)

// faultText is one line that a database can keep and a terminal shows.
func faultText(text string) string {
	text = safetext.Line(text)
	if len(text) > mostFault {
		text = strings.ToValidUTF8(text[:mostFault], "") + "…"
	}
	return text
}

// driftDigest is what a report may name its difference by.
var driftDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// shortened cuts a difference that is too long.
func shortened(diff string) string {
	if len(diff) <= maxDrift {
		return diff
	}
	return strings.ToValidUTF8(diff[:maxDrift], "") + "\n… cut: the rest is on the machine"
}

func streamName(s string) string {
	if s == "stderr" {
		return s
	}
	return "stdout"
}

// RotateAgentCert certifies a new key of the calling agent. The old certificate works until the first session on the
// new one.
func (s *Server) RotateAgentCert(
	ctx context.Context, r *fleetv1.RotateAgentCertRequest,
) (*fleetv1.RotateAgentCertResponse, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return nil, err
	}
	csr, digest, err := ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	out, err := s.cfg.Store.Agents.Rotate(ctx, who.ID, digest, Signer(s.cfg.CA, csr, s.cfg.CertLifetime, s.cfg.Clock),
		"ROTATE_CERT", s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	return &fleetv1.RotateAgentCertResponse{CertificateChainPem: out.ChainPEM, TrustBundlePem: s.cfg.CA.RootPEM()}, nil
}
