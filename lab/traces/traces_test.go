package traces

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/testkit/document"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// configuration of a controller, or of an agent, that sends its spans to an address.
func configuration(address string) string {
	return fmt.Sprintf("traces: {otlp_endpoint: %q, insecure: true}\n", address)
}

// marked stands in everything that clients may write freely.
const marked = "MARKED-5f3a"

// system is a controller and an agent as processes, and a machine in maintenance. The agent is a process that ends with
// the test.
func system(t *testing.T, address string, reboot time.Duration) (*harness.ControllerProcess, *harness.Machine) {
	t.Helper()
	c := harness.NewControllerProcessWith(t, configuration(address))
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Stopped: true, Delay: reboot, Lines: configuration(address)})
	m.AgentProcess("")
	m.WaitConnected()
	harness.Must(t, c.Machines().EnterMaintenance, &baremetalv1.EnterMaintenanceRequest{MachineId: m.ID, RequestId: "in",
		Comment: marked})
	m.WaitQuiet(rig.Soon)
	return c, m
}

// whole waits until the trace of an operation has its own span, which comes last, and holds that it is one tree.
func whole(t *testing.T, r *receiver, operationID string) []received {
	t.Helper()
	var all []received
	complete := func() bool {
		all = r.ofOperation(operationID)
		return len(named(all, traces.Operation)) > 0 && len(named(all, traces.Agent)) > 0 && hanging(all) == ""
	}
	testkit.Eventually(t, rig.Soon, complete, "no tree with the operation and its agent: %s",
		rig.Stringer(func() string { return hanging(all) + outline(all) }))
	roots, seen := 0, map[string]bool{}
	for _, s := range all {
		if len(s.GetParentSpanId()) == 0 {
			roots++
		}
		if id := hex.EncodeToString(s.GetSpanId()); seen[id] {
			t.Errorf("two spans are %s: %s", id, outline(all))
		} else {
			seen[id] = true
		}
		if s.GetStartTimeUnixNano() == 0 || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s ends before it begins", s.GetName())
		}
	}
	if root := named(all, traces.Operation); roots != 1 || len(root) != 1 || len(root[0].GetParentSpanId()) != 0 {
		t.Errorf("%d spans have none above them: %s", roots, outline(all))
	}
	return all
}

// hanging names a span that stands below one that is not there.
func hanging(all []received) string {
	there := map[string]bool{"": true}
	for _, s := range all {
		there[string(s.GetSpanId())] = true
	}
	for _, s := range all {
		if !there[string(s.GetParentSpanId())] {
			return fmt.Sprintf("%s stands below %x, which is not there", s.GetName(), s.GetParentSpanId())
		}
	}
	return ""
}

// has holds that there is a span of each of the names, by a program.
func has(t *testing.T, all []received, service string, names ...traces.Name) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(named(all, name), func(s received) bool { return s.service == service }) {
			t.Errorf("%s has sent no %s: %s", service, name, outline(all))
		}
	}
}

// A reboot is one trace: from the call, which evaluates it, through the command to the agent, and to the end.
func TestRebootIsOneTrace(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	c, m := system(t, r.address, 50*time.Millisecond)
	op := rig.Reboot(t, c.Client, m.ID, "reboot", 60)
	c.Wait(op.GetOperationId(), rig.Soon)
	all := whole(t, r, op.GetOperationId())
	has(t, all, "ingot-controller", traces.Call, traces.Transition, traces.Dispatch, traces.Command, traces.Operation)
	has(t, all, "ingot-agent", traces.Agent, traces.Grant, traces.Execute, traces.Resume)
	if call := named(all, traces.Call)[0]; call.GetName() != "call MachineService/RebootMachine" ||
		call.attribute(traces.RPCCode) != "0" || call.attribute(traces.OperationID) != op.GetOperationId() {
		t.Errorf("the call is %v", call.Span)
	}
	if root := named(all, traces.Operation)[0]; root.GetName() != "operation REBOOT" ||
		root.attribute(traces.Outcome) != "SUCCEEDED" || root.attribute(traces.MachineID) != m.ID {
		t.Errorf("the operation is %v", root.Span)
	}
	nothingButIDs(t, r, c.Token())
}

// nothingButIDs holds that spans hold the published attributes alone, and nothing that clients wrote freely.
func nothingButIDs(t *testing.T, r *receiver, token string) {
	t.Helper()
	var keys []string
	for _, row := range document.Constants(t, "internal/obs/traces", "Attribute") {
		keys = append(keys, strings.Trim(row[0], "`"))
	}
	for _, trace := range r.traces() {
		for _, s := range r.of(trace) {
			for _, a := range s.GetAttributes() {
				if !slices.Contains(keys, a.GetKey()) {
					t.Errorf("%s has the attribute %s, which is not published", s.GetName(), a.GetKey())
				}
			}
			if text := s.String(); strings.Contains(text, marked) || strings.Contains(text, token) {
				t.Errorf("it holds what a client wrote: %s", text)
			}
		}
	}
}

// Work whose start cannot evaluate it has a span of the job that does.
func TestAJobIsPartOfTheTrace(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	c, m := system(t, r.address, 50*time.Millisecond)
	enter, err := c.Machines().EnterMaintenance(t.Context(), &baremetalv1.EnterMaintenanceRequest{
		MachineId: m.ID, RequestId: "enter",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Wait(enter.GetOperationId(), rig.Soon)
	op, err := c.Machines().ExitMaintenance(t.Context(), &baremetalv1.ExitMaintenanceRequest{
		MachineId: m.ID, RequestId: "exit",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Wait(op.GetOperationId(), rig.Soon)
	testkit.Eventually(t, rig.Soon, func() bool {
		return len(named(r.ofOperation(op.GetOperationId()), traces.Job)) > 0
	}, "no span of the job")
}

// The controller is killed while the machine reboots. The next one goes on in the same trace.
func TestTraceGoesOnAfterKill9(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	c, m := system(t, r.address, 4*time.Second)
	op := rig.Reboot(t, c.Client, m.ID, "reboot", 60)
	testkit.Eventually(t, rig.Soon, func() bool {
		all := r.ofOperation(op.GetOperationId())
		return len(named(all, traces.Call)) > 0 && len(named(all, traces.Dispatch)) > 0
	}, "the first controller has sent nothing")
	c.Process.Kill()
	if before := r.ofOperation(op.GetOperationId()); len(named(before, traces.Operation)) > 0 {
		t.Fatalf("it had ended before the controller was killed: %s", outline(before))
	}
	c.Start("")
	c.Wait(op.GetOperationId(), rig.Soon)
	all := whole(t, r, op.GetOperationId())
	has(t, all, "ingot-agent", traces.Agent, traces.Grant)
	controllers := map[string][]string{}
	for _, s := range all {
		if s.service == "ingot-controller" {
			controllers[s.instance] = append(controllers[s.instance], s.GetName())
		}
	}
	if len(controllers) != 2 {
		t.Errorf("spans of controllers: %v", controllers)
	}
	call, root := named(all, traces.Call)[0], named(all, traces.Operation)[0]
	if call.instance == root.instance || !bytes.Equal(call.GetParentSpanId(), root.GetSpanId()) {
		t.Errorf("the call of %s does not stand below the operation of %s", call.instance, root.instance)
	}
}

// A caller's own trace has a span of the call, by gRPC and by REST, and each leads to the other.
func TestTraceOfTheCaller(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	c, m := system(t, r.address, 10*time.Millisecond)
	const above = "00f067aa0ba902b7"
	traceparent := func(trace string) string { return "00-" + trace + "-" + above + "-01" }
	byGRPC, byREST := "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent(byGRPC))
	op, err := c.Machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "traced"})
	if err != nil {
		t.Fatal(err)
	}
	c.Wait(op.GetOperationId(), rig.Soon)
	all := whole(t, r, op.GetOperationId())
	get(t, c, "/machines/"+m.ID, traceparent(byREST))
	for trace, method := range map[string]string{
		byGRPC: "call MachineService/RebootMachine", byREST: "call MachineService/GetMachine",
	} {
		var own []received
		testkit.Eventually(
			t,
			rig.Soon,
			func() bool { own = r.of(trace); return len(own) > 0 },
			"nothing in the caller's trace",
		)
		if len(own) != 1 || own[0].GetName() != method || hex.EncodeToString(own[0].GetParentSpanId()) != above {
			t.Fatalf("the caller's trace: %s", outline(own))
		}
		if trace == byREST {
			continue
		}
		links, back := own[0].GetLinks(), named(all, traces.Call)[0].GetLinks()
		if len(links) != 1 || !bytes.Equal(links[0].GetSpanId(), named(all, traces.Operation)[0].GetSpanId()) ||
			len(back) != 1 || !bytes.Equal(back[0].GetSpanId(), own[0].GetSpanId()) {
			t.Errorf("links %v and %v", links, back)
		}
	}
}

func get(t *testing.T, c *harness.ControllerProcess, path, traceparent string) {
	t.Helper()
	root, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.Addresses().REST+"/api/v1"+path,
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token())
	req.Header.Set("Traceparent", traceparent)
	resp, err := (&http.Client{Transport: transport, Timeout: rig.Soon}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
}

// A receiver that takes connections and never answers, and one that is not there, block nothing: operations end, and so
// do the programs.
func TestDeafReceiver(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // no connection to it is read
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"silent": l.Addr().String(), "gone": gone.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, m := system(t, address, 10*time.Millisecond)
			for i := range 5 {
				op := rig.Reboot(t, c.Client, m.ID, fmt.Sprint("reboot-", i), 60)
				rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
			}
			begun := time.Now()
			c.Process.Terminate()
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("the controller took %v to stop", took)
			}
		})
	}
}
