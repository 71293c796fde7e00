package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ingot-metal/ingot/agent/state"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// agentAttempts are those of host agents that hold a valid certificate.
func agentAttempts() []Attempt {
	return []Attempt{
		{Party: Host, Attempt: "connections without end", Rule: 5, Run: agentConnections},
		{Party: Host, Attempt: "calls of 4 MiB, sent by half", Rule: 5, Run: agentHalfCalls},
		{Party: Host, Attempt: "events faster than they are stored", Rule: 5, Run: agentEvents},
	}
}

// stolen is the certificate of an agent that has enrolled and connected, and runs no more.
func (r *Rig) stolen() (tls.Certificate, *harness.Machine, error) {
	m := r.C.NewMachine(r.T, harness.MachineOptions{})
	m.WaitConnected()
	if err := m.Stop(); err != nil {
		return tls.Certificate{}, nil, err
	}
	creds, err := state.Dir(m.StateDir).Credentials()
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return creds.TLS(), m, nil
}

// agentConnections opens many connections with one certificate.
func agentConnections(ctx context.Context, r *Rig) (Outcome, error) {
	cert, _, err := r.stolen()
	if err != nil {
		return Outcome{}, err
	}
	cfg := r.TLS("h2")
	cfg.Certificates = []tls.Certificate{cert}
	n := r.Many(100, 2000)
	c := r.gather(ctx, n, []string{r.Addresses().Fleet}, func(_ int, c net.Conn) (net.Conn, error) {
		t := tls.Client(c, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		_, err := t.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		return t, err
	})
	defer c.close()
	hold(ctx, time.Second)
	kept := stillOpen(c.open)
	for begun := time.Now(); kept > 8 && time.Since(begun) < 10*time.Second; kept = stillOpen(c.open) {
		hold(ctx, time.Second) // those that are refused are closed one after the other
	}
	if kept > 8 {
		return breached("one agent has %d connections", kept), nil
	}
	return held("%d connections, %d of them kept", n, kept), nil
}

// stillOpen counts the connections that the other side has not closed.
func stillOpen(open []net.Conn) (n int) {
	for _, conn := range open {
		if conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)) != nil {
			continue
		}
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			n++
		}
	}
	return n
}

// agentHalfCalls begins calls with large messages, and never ends them.
func agentHalfCalls(ctx context.Context, r *Rig) (Outcome, error) {
	cert, _, err := r.stolen()
	if err != nil {
		return Outcome{}, err
	}
	n := r.Many(100, 1000)
	var all int64
	for _, method := range []string{"Commands", "Events", "SyncSite"} {
		answered, err := r.send(ctx, bodies{
			url: "https://" + r.Addresses().Fleet + "/fleet.v1.AgentService/" + method, contentType: "application/grpc",
			header: []byte{0, 0, 0x3f, 0xff, 0xff}, size: 3 << 20, requests: n, conns: 4, cert: []tls.Certificate{cert},
		})
		if err != nil {
			return Outcome{}, err
		}
		all += answered
	}
	return held("%d calls, %d of them refused or cut off", 3*n, all), nil
}

// agentEvents sends logs without waiting for anything.
func agentEvents(ctx context.Context, r *Rig) (Outcome, error) {
	cert, m, err := r.stolen()
	if err != nil {
		return Outcome{}, err
	}
	cfg := r.TLS()
	cfg.Certificates = []tls.Certificate{cert}
	conn, err := grpc.NewClient("passthrough:///"+r.Addresses().Fleet,
		grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		return Outcome{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Many(5, 60))*time.Second)
	defer cancel()
	agent := fleetv1.NewAgentServiceClient(conn)
	commands, err := agent.Commands(ctx)
	if err != nil {
		return Outcome{}, err
	}
	hello := &fleetv1.Hello{StateId: "st-hostile", BootId: r.C.Machine(m.ID).GetStatus().GetBootId(),
		HardwareFingerprint: "hostile"}
	if err := commands.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: hello}}); err != nil {
		return Outcome{}, err
	}
	first, err := commands.Recv()
	if err != nil {
		return Outcome{}, err
	}
	w := first.GetWelcome()
	events, err := agent.Events(ctx)
	if err != nil {
		return Outcome{}, err
	}
	err = events.Send(
		&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{SessionId: w.GetSessionId(),
			Epoch: w.GetEpoch()}}})
	sent := 0
	data := make([]byte, 1<<20)
	for err == nil {
		e := &fleetv1.Event{Seq: uint64(sent + 1), Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{Data: data}}}
		if err = events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Event{Event: e}}); err == nil {
			sent++
		}
	}
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return Outcome{}, err
	}
	return held("%d MiB in %v, at the pace of the database", sent, time.Duration(r.Many(5, 60))*time.Second), nil
}
