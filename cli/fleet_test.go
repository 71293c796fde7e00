package cli

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// CountMachines counts the fleet by site and effective state, whatever it is asked for; keys that are none are refused.
func (f *fakeServer) CountMachines(_ context.Context, r *pb.CountMachinesRequest) (*pb.CountMachinesResponse, error) {
	out := &pb.CountMachinesResponse{Total: int32(len(f.machines)), AsOf: at(0)}
	groups := map[string]*pb.MachineGroup{}
	for _, m := range f.machines {
		var values []string
		for _, key := range r.GetGroupBy() {
			switch key {
			case "site":
				values = append(values, "berlin")
			case "state", "effective_state":
				values = append(values, strings.TrimSuffix(m.GetStatus().GetEffectiveState().String(), "_IDLE"))
			default:
				return nil, refuse(codes.InvalidArgument, pb.Reason_INVALID_GROUP_BY, "group_by: "+key+" is none", nil)
			}
		}
		if len(values) == 0 {
			continue
		}
		name := strings.Join(values, "/")
		if groups[name] == nil {
			groups[name] = &pb.MachineGroup{Values: values}
			out.Groups = append(out.Groups, groups[name])
		}
		groups[name].Count++
	}
	return out, nil
}

// ExplainMachines returns one machine a page: one that waits, and one that needs an operator.
func (f *fakeServer) ExplainMachines(
	_ context.Context, r *pb.ExplainMachinesRequest,
) (*pb.ExplainMachinesResponse, error) {
	if r.GetFilter() == "state=IDLE" {
		return &pb.ExplainMachinesResponse{}, nil
	}
	if r.GetPageToken() == "" {
		return &pb.ExplainMachinesResponse{NextPageToken: "2", Machines: []*pb.ExplainedMachine{{
			Machine:     machine("m-waits", pb.MachineStatus_READY, pb.MachineStatus_BUSY, "op-1"),
			Explanation: &pb.ExplainMachineResponse{MachineId: "m-waits", Summary: "REBOOT, step reboot, waits", WaitsOn: "bmc"},
		}}}, nil
	}
	return &pb.ExplainMachinesResponse{Machines: []*pb.ExplainedMachine{{
		Machine: machine("m-needs", pb.MachineStatus_READY, pb.MachineStatus_ATTENTION, ""),
		Explanation: &pb.ExplainMachineResponse{
			MachineId: "m-needs", Summary: "REIMAGE failed", WaitsOn: "operator", WaitsFor: "an operator",
			Reason: "BMC_AUTH_FAILED", Since: at(-60),
			Actions: []*pb.OperatorAction{{Command: "ingot bmc unpark m-needs"},
				{Command: "ingot reimage m-needs", Destructive: true}},
		},
	}}}, nil
}

// WatchMachines is cut off in the middle of a fleet's life, and goes on from its cursor.
func (f *fakeServer) WatchMachines(r *pb.WatchMachinesRequest, s pb.MachineService_WatchMachinesServer) error {
	f.mu.Lock()
	f.sent = append(f.sent, r)
	f.mu.Unlock()
	send := func(kind pb.MachineEvent_Kind, m *pb.Machine, cursor string) error {
		return s.Send(&pb.MachineEvent{Kind: kind, Machine: m, Cursor: cursor})
	}
	for _, m := range f.machines {
		m.UpdatedAt = at(7)
	}
	if r.GetCursor() == "" {
		for _, err := range []error{
			send(pb.MachineEvent_CURRENT, f.machines[0], "c1"), send(pb.MachineEvent_BOOKMARK, nil, "c2"),
		} {
			if err != nil {
				return err
			}
		}
		return lostConnection
	}
	for _, err := range []error{
		send(pb.MachineEvent_CHANGED, f.machines[2], "c3"), send(pb.MachineEvent_LEFT, f.machines[0], "c4"),
		send(pb.MachineEvent_DELETED, f.machines[4], "c5"), send(pb.MachineEvent_BOOKMARK, nil, "c6"),
	} {
		if err != nil {
			return err
		}
	}
	return refuse(codes.PermissionDenied, pb.Reason_SCOPE_TOO_SMALL, "that is all", nil)
}

func TestCount(t *testing.T) {
	for line, want := range map[string]string{
		"count":                    "5 machines\n",
		"count --by site,state":    "SITE    STATE        MACHINES\nberlin  IDLE         1\nberlin  BUSY         1\n",
		"count --by state -o name": "IDLE\nBUSY\nATTENTION\nBLOCKED\nMAINTENANCE\n",
		"count --by state -o json": `"total": 5`,
	} {
		if got := fleet().run(t, strings.Fields(line)...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: exit code %d, %s\n%s", line, got.code, got.err, got.out)
		}
	}
	if got := fleet().run(t, "count", "--by", "colour"); got.code != 2 || !strings.Contains(got.err, "INVALID_GROUP_BY") {
		t.Errorf("a key that is none: %+v", got)
	}
}

func TestWhyOfMany(t *testing.T) {
	want := `m-waits  BUSY  REBOOT, step reboot, waits
  WaitsOn:  bmc

m-needs  ⚠ATTENTION  REIMAGE failed
  Reason:   BMC_AUTH_FAILED
  WaitsOn:  operator: an operator
`
	got := fleet().run(t, "why", "--filter", "site=berlin")
	if got.code != 0 || !strings.HasPrefix(got.out, want) ||
		!strings.Contains(got.out, "    ingot bmc unpark m-needs\n  ! ingot reimage m-needs\n") {
		t.Errorf("exit code %d, %s\n%s", got.code, got.err, got.out)
	}
	for line, code := range map[string]int{
		"why --filter state=ATTENTION --check": 4, "why --filter state=IDLE --check": 0, "why m-1 --filter state=IDLE": 1,
		"why --filter site=berlin -o name": 0,
	} {
		if got := fleet().run(t, strings.Fields(line)...); got.code != code {
			t.Errorf("%s: exit code %d, want %d: %s", line, got.code, code, got.err)
		}
	}
}

func TestListWatch(t *testing.T) {
	f := fleet()
	got := f.run(t, "list", "--watch", "--filter", "site=berlin")
	want := `[12:00:07Z] CURRENT  machine-1   IDLE         READY
[12:00:07Z] CHANGED  machine-3   ⚠ATTENTION   READY          DISK_WRITE_ERROR:
[12:00:07Z] LEFT     machine-1   IDLE         READY
[12:00:07Z] DELETED  machine-5
`
	if got.out != want || !strings.Contains(got.err, "connection lost") {
		t.Errorf("%q, want\n%q\n%s", got.out, want, got.err)
	}
	if again, ok := f.sent[1].(*pb.WatchMachinesRequest); !ok || again.GetCursor() != "c2" ||
		again.GetFilter() != "site=berlin" {
		t.Errorf("it went on by %v", f.sent)
	}
	if got := fleet().run(t, "list", "--watch", "-o", "json"); strings.Count(got.out, "\n") != 6 ||
		!strings.Contains(got.out, `"kind":"BOOKMARK"`) {
		t.Errorf("as documents:\n%s", got.out)
	}
	if got := fleet().run(t, "list", "--watch", "--order-by", "rack"); got.code != 1 {
		t.Errorf("a watch in an order: %+v", got)
	}
}

func TestListInOrder(t *testing.T) {
	f := fleet()
	got := f.run(t, "list", "--order-by", "rack desc", "-o", "name")
	if got.code != 0 || len(f.asked) != 5 || !strings.Contains(f.asked[0], `"order_by":"rack desc"`) {
		t.Errorf("%+v asked %v", got, f.asked)
	}
}

// The moment is asked for with every page, and told to the person, not to the program that reads the answer.
func TestAsOf(t *testing.T) {
	const moment = "2026-03-01T03:12:00Z"
	for line, calls := range map[string]int{
		"list --as-of " + moment: 5, "count --by state --as-of " + moment: 1, "machine get machine-1 --as-of " + moment: 1,
	} {
		f := fleet()
		got := f.run(t, append(strings.Fields(line), "-o", "json")...)
		if got.code != 0 || len(f.asked) != calls || !strings.HasPrefix(got.err, "As of 2026-03-01T") ||
			!json.Valid([]byte(got.out)) {
			t.Errorf("%s: %+v asked %v", line, got, f.asked)
		}
		for _, q := range f.asked {
			if !strings.Contains(q, `"as_of":"`+moment+`"`) {
				t.Errorf("%s asked %s", line, q)
			}
		}
	}
	for _, line := range []string{
		"list --as-of 2h --watch", "list --as-of 2h --order-by rack", "list --as-of soon", "count --as-of 25:00",
		"machine get machine-1 --as-of 2h --external-id",
	} {
		if got := fleet().run(t, strings.Fields(line)...); got.code != 1 {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// TestOneZone: an output has one zone, a time of day is read in the zone that is printed, and --utc has both in UTC.
func TestOneZone(t *testing.T) {
	berlin := func(c *command.Config) { c.Zone = time.FixedZone("CET", 3600) }
	for line, want := range map[string][2]string{ // the notes on standard error, and as_of in the request
		"machine get machine-1 --as-of 2026-03-01T03:12":       {"As of 2026-03-01T03:12:00+01:00 (CET):", "2026-03-01T02:12:00Z"},
		"machine get machine-1 --as-of 2026-03-01T03:12 --utc": {"As of 2026-03-01T03:12:00Z (UTC):", "2026-03-01T03:12:00Z"},
		"machine get machine-1 --as-of 2026-03-01T03:12Z":      {"As of 2026-03-01T04:12:00+01:00 (CET):", "2026-03-01T03:12:00Z"},
	} {
		f := fleet()
		got := f.runWith(t, berlin, strings.Fields(line)...)
		if got.code != 0 || !strings.HasPrefix(got.err, want[0]) || !strings.Contains(f.asked[0], `"as_of":"`+want[1]+`"`) {
			t.Errorf("%s: %+v asked %v", line, got, f.asked)
		}
		zone := "+01:00"
		if strings.HasSuffix(line, "--utc") {
			zone = "Z"
		}
		for _, stamp := range regexp.MustCompile(`\d\d:\d\d:\d\d\S*`).FindAllString(got.out, -1) {
			if !strings.HasSuffix(stamp, zone) {
				t.Errorf("%s: %s stands in an output of zone %s", line, stamp, zone)
			}
		}
		if !strings.Contains(got.out, zone) {
			t.Errorf("%s prints no time: %s", line, got.out)
		}
	}
}
