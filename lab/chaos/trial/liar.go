package trial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// The ways to lie. Each contradicts a controller's knowledge; docs/bugs-found.md lists lies that cannot be detected.
const (
	// lieClaim asks for its grant and then reports success. It invents the proof of a reboot, and shows no other.
	lieClaim = iota
	// lieEarly reports success, with proof, before it has asked for anything.
	lieEarly
	// lieBoot asks from a boot that the machine was never in, so that the one that it is in looks new.
	lieBoot
	// lieForeign reports success, with proof, and failure by turns for the commands of other machines' agents.
	lieForeign
)

var waysToLie = [...]int{lieClaim, lieEarly, lieBoot, lieForeign}

// liar takes the place of an agent, with its identity and a memory of its own, and has no effect on anything.
type liar struct {
	a       *agentProgram
	how     int
	machine sim.MachineState
	stateID string
	stream  grpc.BidiStreamingClient[fleetv1.AgentMessage, fleetv1.ControllerMessage]
	seq     uint64
	specs   map[string]*fleetv1.CommandSpec
	told    int
}

// lie replaces the agent by a liar for a while. On a machine that is about to reboot a claim of a reboot is no lie.
func (a *agentProgram) lie(ctx context.Context, s plan.Strike) (took bool, err error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	if err := a.Kill(); err != nil {
		return false, err
	}
	l := &liar{a: a, how: waysToLie[s.Target/7%len(waysToLie)], stateID: ids.New(ids.State),
		specs: map[string]*fleetv1.CommandSpec{}}
	lying, stop := context.WithTimeout(ctx, cloneStart+s.Length)
	defer stop()
	if l.machine, err = a.c.world.State(a.machine); err == nil && len(l.machine.Pending) == 0 {
		// It ends with its time, or because the controller has had enough of it.
		_ = l.run(lying, a.c.controllers[s.Target%len(a.c.controllers)].fleet[a.index].Address())
	}
	return l.told > 0, errors.Join(err, a.Start(""))
}

func (l *liar) run(ctx context.Context, address string) (err error) {
	dir := state.Dir(l.a.dir)
	who, err := dir.Credentials()
	if err != nil {
		return err
	}
	roots, err := dir.Trust()
	if err != nil {
		return err
	}
	cfg, err := transport.Mutual(who.TLS(), roots, address, time.Now)
	if err != nil {
		return err
	}
	conn, err := transport.Dial(address, cfg, transport.NetDialer(), transport.Patience)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if l.stream, err = fleetv1.NewAgentServiceClient(conn).Commands(ctx); err != nil {
		return err
	}
	if err := l.hello(ctx); err != nil {
		return err
	}
	if l.how == lieForeign {
		return l.meddle(ctx)
	}
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if err := l.hear(m); err != nil {
			return err
		}
	}
}

// hello is what the agent itself would say.
func (l *liar) hello(ctx context.Context) error {
	m := l.a.c.world.Machine(l.a.machine)
	id, err := m.Identity(ctx)
	if err != nil {
		return err
	}
	h := &fleetv1.Hello{
		Version: "liar", Roles: []string{"host"}, Capabilities: m.Capabilities(), BootId: id.BootID,
		MachineIdOs:         id.MachineID,
		HardwareFingerprint: id.HardwareFingerprint, StateId: l.stateID, Simulated: true, Hostname: id.Hostname,
		OsImageDigest: l.machine.BootedImage.Digest,
	}
	return l.stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: h}})
}

func (l *liar) hear(m *fleetv1.ControllerMessage) error {
	switch m := m.GetMessage().(type) {
	case *fleetv1.ControllerMessage_Command:
		spec := &fleetv1.CommandSpec{}
		if err := proto.Unmarshal(m.Command.GetSpec(), spec); err != nil {
			return err
		}
		l.specs[spec.GetCommandId()] = spec
		if l.how == lieEarly {
			return l.done(spec.GetCommandId(), proofOf(spec, l.machine.BootID))
		}
		return l.ask(m.Command)
	case *fleetv1.ControllerMessage_Grant:
		spec := l.specs[m.Grant.GetCommandId()]
		proof := proofOf(spec, l.machine.BootID)
		if spec.GetReboot() == nil {
			proof = nil
		}
		return l.done(m.Grant.GetCommandId(), proof)
	}
	return nil
}

func (l *liar) ask(c *fleetv1.Command) error {
	l.seq++
	r := &fleetv1.GrantRequest{
		CommandId: c.GetCommandId(), StateId: l.stateID, Seq: l.seq, Nonce: make([]byte, 16), BootId: l.machine.BootID,
		Digest: c.GetDigest(),
	}
	_, _ = rand.Read(r.Nonce) // it never fails
	if l.how == lieBoot {
		r.BootId = "00000000-0000-4000-8000-000000000000"
		l.told++
	}
	return l.stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_GrantRequest{GrantRequest: r}})
}

// done reports a command as succeeded.
func (l *liar) done(command string, proof map[string]string) error {
	return l.send(&fleetv1.CommandResult{CommandId: command, Outcome: fleetv1.CommandResult_SUCCEEDED, Evidence: proof})
}

// failed reports a command as failed.
func (l *liar) failed(command string) error {
	return l.send(&fleetv1.CommandResult{CommandId: command, Outcome: fleetv1.CommandResult_FAILED,
		Reason: "EXECUTION_FAILED", Message: "a lie"})
}

// send completes a result and sends it.
func (l *liar) send(r *fleetv1.CommandResult) error {
	l.told++
	r.FinishedAt, r.Simulated, r.StateId = timestamppb.Now(), true, l.stateID
	return l.stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Result{Result: r}})
}

// proofOf is what an agent would show that has done the command.
func proofOf(spec *fleetv1.CommandSpec, boot string) map[string]string {
	switch {
	case spec.GetReboot() != nil:
		return rebootProof(boot)
	case spec.GetRepave() != nil:
		return map[string]string{evidence.ImageDigest: "sha256:" + spec.GetRepave().GetSha256Raw()}
	case spec.GetNetboot() != nil:
		return map[string]string{evidence.BootNext: "Boot0003"}
	}
	return map[string]string{}
}

func rebootProof(boot string) map[string]string {
	return map[string]string{evidence.BootIDBefore: boot, evidence.BootIDAfter: ids.New(ids.State)}
}

// meddle reports on commands of other machines that are under way, once in each state. A success of a command that is
// granted shows only where its agent then fails; a failure shows wherever the agent acts.
func (l *liar) meddle(ctx context.Context) error {
	told := map[string]bool{}
	for {
		for _, other := range l.a.c.agents {
			if other == l.a {
				continue
			}
			c, err := other.command(ctx)
			if err != nil || c == nil || told[c.GetCommandId()+c.GetState()] {
				continue // a controller that does not answer now does later
			}
			told[c.GetCommandId()+c.GetState()] = true
			if c.GetState() == "GRANTED" && len(told)%2 == 0 {
				if err := l.failed(c.GetCommandId()); err != nil {
					return err
				}
				continue
			}
			proof := rebootProof("")
			proof[evidence.ImageDigest], proof[evidence.BootNext] = fmt.Sprintf("sha256:%064d", 1), "Boot0003"
			if err := l.done(c.GetCommandId(), proof); err != nil {
				return err
			}
		}
		program.Rest(ctx, pollEvery)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// pollEvery is how often the harness looks for a command that is under way.
const pollEvery = 15 * time.Millisecond

// command is the one that is under way on the agent's machine; nil when there is none.
func (a *agentProgram) command(ctx context.Context) (*baremetalv1.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	m, err := a.c.controllers[0].machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: a.machine})
	if err != nil || m.GetStatus().GetActiveOperationId() == "" {
		return nil, err
	}
	list, err := a.c.controllers[0].admin().ListCommands(ctx,
		&baremetalv1.ListCommandsRequest{OperationId: m.GetStatus().GetActiveOperationId()})
	if err != nil {
		return nil, err
	}
	for _, c := range list.GetCommands() {
		switch c.GetState() {
		case "SENT", "ACKED", "GRANTED":
			return c, nil
		}
	}
	return nil, nil
}
