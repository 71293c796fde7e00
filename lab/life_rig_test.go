//go:build metal

package lab_test

import (
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/metal"
)

// ingot runs the command line, as an operator beside the lab would, and returns its exit code and its output.
func (s *site) ingot(args ...string) (int, string) {
	s.Helper()
	reach := s.lab.Reach()
	env := map[string]string{
		"INGOT_SERVER": reach.Frontpage, "INGOT_CA_FILE": reach.CAFile, "INGOT_TOKEN_FILE": reach.TokenFile,
		"INGOT_CONFIG": os.DevNull,
		"HOME":         s.dir,
	}
	return harness.RunIngot(s.ctx, env, args...)
}

// run is ingot with anything but success fatal.
func (s *site) run(args ...string) string {
	s.Helper()
	code, out := s.ingot(args...)
	if code != 0 {
		s.Fatalf("ingot %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// refused holds that the command line refuses, and names the reason.
func (s *site) refused(reason string, args ...string) {
	s.Helper()
	if code, out := s.ingot(args...); code != 4 || !strings.Contains(out, reason) {
		s.Errorf("ingot %s: exit code %d, want 4 with %s\n%s", strings.Join(args, " "), code, reason, out)
	}
}

func (s *site) node(id string) *pb.Node {
	s.Helper()
	n, err := s.api.Nodes.GetNode(s.ctx, &pb.GetNodeRequest{NodeId: id})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *site) holdsNode(id string, want pb.NodeState) {
	s.Helper()
	if got := s.node(id).GetState(); got != want {
		s.Errorf("node %s is %s, want %s", id, got, want)
	}
}

// moves are the node's states, from the first one on.
func (s *site) moves(id string) string {
	s.Helper()
	h, err := s.api.Nodes.GetNodeHistory(s.ctx, &pb.GetNodeHistoryRequest{NodeId: id, Limit: 1000})
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, row := range h.GetData() {
		out = append([]string{stateName(row.GetToState())}, out...)
	}
	return strings.Join(out, " ")
}

func stateName(n pb.NodeState) string {
	return strings.ToLower(strings.TrimPrefix(n.String(), "NODE_STATE_"))
}

func (s *site) explain(id string) *pb.ExplainMachineResponse {
	s.Helper()
	e, err := s.api.Machines.ExplainMachine(s.ctx, &pb.ExplainMachineRequest{MachineId: id})
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// workflowOf is the machine's newest, nil while there is none or the controller is away.
func (s *site) workflowOf(id string) *pb.Workflow {
	s.Helper()
	all, err := s.api.Workflows.ListWorkflows(s.ctx, &pb.ListWorkflowsRequest{Filter: "machine_id=" + id})
	if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	if len(all.GetWorkflows()) == 0 {
		return nil
	}
	return all.GetWorkflows()[0]
}

// operationOf is the last attempt of a workflow.
func (s *site) operationOf(w *pb.Workflow) *pb.Operation {
	s.Helper()
	op, err := s.api.Operations.GetOperation(s.ctx, &pb.GetOperationRequest{OperationId: w.GetOperationId()})
	if err != nil {
		s.Fatal(err)
	}
	return op
}

// discovered waits until the site has seen an unknown machine.
func (s *site) discovered(mac string) *pb.DiscoveredMachine {
	s.Helper()
	var found *pb.DiscoveredMachine
	testkit.Eventually(s.T, cycle, func() bool {
		list, err := s.api.Admin.ListDiscovered(s.ctx, &pb.ListDiscoveredRequest{Site: metal.SiteName})
		if err != nil {
			s.Fatal(err)
		}
		for _, d := range list.GetMachines() {
			if d.GetMacAddress() == mac {
				found = d
			}
		}
		return found != nil
	}, "machine %s is not discovered", mac)
	return found
}
