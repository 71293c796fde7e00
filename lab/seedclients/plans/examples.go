package plans

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// SampleMachine is the machine of the design, without the status, which is the server's.
const SampleMachine = `{
  "machine_id": "m-123",
  "labels": {"env": "prod", "role": "worker", "provider": "dc-1"},
  "spec": {
    "ssh_endpoint": "10.20.30.40:22",
    "bmc_endpoint": "10.20.30.41",
    "target_cluster_ref": "cluster-a",
    "mac_addresses": ["aa:bb:cc:dd:ee:ff"]
  }
}`

// SamplePlan is the plan of the design.
const SamplePlan = `{
  "plan_id": "plan-repave-ubuntu-2204-v1",
  "display_name": "Repave Ubuntu 22.04 + Join Cluster",
  "steps": [
    {"name": "set-netboot", "timeout_seconds": 60, "max_retries": 2, "netboot": {"mode": "PXE"}},
    {"name": "repave-os", "timeout_seconds": 1800, "max_retries": 1, "repave": {"image": "ubuntu-22.04"}},
    {"name": "reboot", "timeout_seconds": 300, "max_retries": 2, "reboot": {"mode": "bmc"}},
    {"name": "join-cluster", "timeout_seconds": 600, "max_retries": 1, "join": {"cluster_ref": "cluster-a"}},
    {"name": "verify", "timeout_seconds": 300, "max_retries": 0, "verify": {"cluster_ref": "cluster-a"}}
  ]
}`

// Inventory registers the sample machine, reads it back, and finds it by filter and by pages.
func (c *Client) Inventory(ctx context.Context) error {
	m := &Machine{}
	if err := protojson.Unmarshal([]byte(SampleMachine), m); err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	if _, err := c.RegisterMachine(ctx, m); err != nil {
		return fmt.Errorf("register the sample: %w", err)
	}
	got, err := c.GetMachine(ctx, m.GetMachineId())
	if err != nil {
		return err
	}
	spec := proto.Clone(got.GetSpec()).(*MachineSpec)
	spec.ProtoReflect().SetUnknown(nil) // fields that were published later
	if !proto.Equal(spec, m.GetSpec()) || fmt.Sprint(got.GetLabels()) != fmt.Sprint(m.GetLabels()) ||
		got.GetStatus().GetActiveRunId() != "" {
		return fmt.Errorf("the sample is stored as %v", got)
	}
	page, err := c.ListMachines(ctx, &ListMachinesRequest{Filter: "phase=FACTORY_READY", PageSize: 1})
	if err != nil || len(page.GetMachines()) != 1 || page.GetNextPageToken() == "" {
		return fmt.Errorf("the first page is %v: %w", page, err)
	}
	next, err := c.ListMachines(ctx, &ListMachinesRequest{Filter: "phase=FACTORY_READY", PageSize: 1,
		PageToken: page.GetNextPageToken()})
	if err != nil || len(next.GetMachines()) != 1 ||
		next.GetMachines()[0].GetMachineId() == page.GetMachines()[0].GetMachineId() {
		return fmt.Errorf("the second page is %v: %w", next, err)
	}
	return nil
}

// Plans finds the sample plan, which an admin has stored, by its id and in the list.
func (c *Client) Plans(ctx context.Context) error {
	want := &Plan{}
	if err := protojson.Unmarshal([]byte(SamplePlan), want); err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	got, err := c.GetPlan(ctx, want.GetPlanId())
	if err != nil {
		return err
	}
	got.ProtoReflect().SetUnknown(nil)
	if !proto.Equal(got, want) {
		return fmt.Errorf("the sample plan is stored as %v", got)
	}
	all, err := c.ListPlans(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.GetPlanId() == want.GetPlanId() {
			return nil
		}
	}
	return errors.New("the sample plan is not in the list")
}

// Observe starts a run and watches it to its end: each event shows the steps as they were then.
func (c *Client) Observe(ctx context.Context, r *StartRunRequest) (*Run, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	run, err := c.StartRun(ctx, r)
	if err != nil {
		return nil, err
	}
	if run.GetPhase() != Run_PENDING && run.GetPhase() != Run_RUNNING || run.GetRequestId() != r.GetRequestId() {
		return nil, fmt.Errorf("StartRun answered %v", run)
	}
	for replay := range 2 { // the second time the run has ended, and its events tell the same
		if err := c.watch(ctx, run); err != nil {
			return nil, fmt.Errorf("watch %d: %w", replay+1, err)
		}
	}
	return c.GetRun(ctx, run.GetRunId())
}

func (c *Client) watch(ctx context.Context, run *Run) error {
	events, err := c.WatchRuns(ctx, "run_id="+run.GetRunId())
	if err != nil {
		return err
	}
	first := true
	for {
		e, err := events.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		s := e.GetSnapshot()
		if first && s.GetPhase() == Run_PENDING {
			for _, step := range s.GetSteps() {
				if step.GetState() != StepStatus_WAITING {
					return fmt.Errorf("before it began, step %s is %v", step.GetName(), step.GetState())
				}
			}
		}
		first = false
		if s.GetPhase() >= Run_SUCCEEDED {
			return nil
		}
		if n := len(s.GetSteps()); n > 0 && s.GetSteps()[n-1].GetState() == StepStatus_SUCCEEDED &&
			s.GetPhase() == Run_PENDING {
			return fmt.Errorf("a run that has not begun has the steps %v", s.GetSteps())
		}
	}
}

// Retry sends a request again: it is the same run, whatever its phase.
func (c *Client) Retry(ctx context.Context, r *StartRunRequest, first *Run) error {
	again, err := c.StartRun(ctx, r)
	if err != nil || again.GetRunId() != first.GetRunId() {
		return fmt.Errorf("the same request again is %v: %w", again, err)
	}
	return nil
}

// Poll starts a run and asks for it until it has ended.
func (c *Client) Poll(ctx context.Context, r *StartRunRequest, every <-chan time.Time) (*Run, error) {
	run, err := c.StartRun(ctx, r)
	for err == nil && run.GetPhase() < Run_SUCCEEDED {
		select {
		case <-every:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		run, err = c.GetRun(ctx, run.GetRunId())
	}
	return run, err
}

// Newest checks that the list has the machine's runs newest first.
func (c *Client) Newest(ctx context.Context, machine string, want ...string) error {
	runs, err := c.ListRuns(ctx, "machine_id="+machine)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range runs {
		got = append(got, r.GetRequestId())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("the runs are %v, not %v", got, want)
	}
	return nil
}

// Errors goes through the table of codes.
func (c *Client) Errors(ctx context.Context, machine string) error {
	for _, e := range []struct {
		what string
		r    *StartRunRequest
		want codes.Code
	}{
		{"unknown machine", &StartRunRequest{RequestId: "e-1", MachineId: "m-none", Type: "REBOOT"}, codes.NotFound},
		{"unknown plan", &StartRunRequest{RequestId: "e-2", MachineId: machine, Type: "REBOOT", PlanId: "plan-none"},
			codes.NotFound},
		{"no request_id", &StartRunRequest{MachineId: machine, Type: "REBOOT"}, codes.InvalidArgument},
		{"a repave outside maintenance", &StartRunRequest{RequestId: "e-3", MachineId: machine, Type: "REPAVE"},
			codes.FailedPrecondition},
	} {
		if _, err := c.StartRun(ctx, e.r); status.Code(err) != e.want {
			return fmt.Errorf("%s is %w, not %v", e.what, err, e.want)
		}
	}
	return nil
}
