package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func mapOf(r *publictest.Rig, q *pb.MapMachinesRequest) *pb.MapMachinesResponse {
	r.T.Helper()
	m, err := r.Machines.MapMachines(r.T.Context(), q)
	if err != nil {
		r.T.Fatalf("map %v: %v", q, err)
	}
	return m
}

// asLines writes a map as "value/value: id state reason value, …".
func asLines(t *testing.T, m *pb.MapMachinesResponse) (out []string) {
	t.Helper()
	total := 0
	for _, g := range m.GetGroups() {
		n := len(g.GetMachineIds())
		total += n
		for what, column := range map[string][]int32{"reasons": g.GetMachineReasons(), "values": g.GetMachineValues()} {
			if len(column) != 0 && len(column) != n || len(g.GetMachineStates()) != n {
				t.Fatalf("group %v has %d machines and %d %s", g.GetValues(), n, len(column), what)
			}
		}
		var all []string
		for i, id := range g.GetMachineIds() {
			one := id + " " + m.GetStates()[g.GetMachineStates()[i]]
			if len(g.GetMachineReasons()) > 0 && g.GetMachineReasons()[i] > 0 {
				one += " " + m.GetReasons()[g.GetMachineReasons()[i]]
			}
			if len(g.GetMachineValues()) > 0 {
				one += " " + m.GetValues()[g.GetMachineValues()[i]]
			}
			all = append(all, strings.TrimSpace(one))
		}
		out = append(out, strings.Join(g.GetValues(), "/")+": "+strings.Join(all, ", "))
	}
	if total != int(m.GetTotal()) {
		t.Errorf("%d machines in groups, %d in all", total, m.GetTotal())
	}
	return out
}

func TestMapMachines(t *testing.T) {
	r := publictest.NewRig(t)
	for i := 8; i <= 11; i++ {
		r.Register(
			&pb.Machine{MachineId: fmt.Sprintf("n%d", i), Labels: map[string]string{"team": []string{"web", "db"}[i%2]},
				Spec: &pb.MachineSpec{Site: "berlin", Rack: fmt.Sprint("r", i)}},
		)
	}
	r.Register(&pb.Machine{MachineId: "x", Spec: &pb.MachineSpec{Site: "berlin", Rack: "r8"}})
	r.Maintenance("n9")
	r.Register(&pb.Machine{MachineId: "gone"})
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "gone"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    *pb.MapMachinesRequest
		want string
	}{
		{&pb.MapMachinesRequest{}, ": n8 NEW, n9 MAINTENANCE, n10 NEW, n11 NEW, x NEW"},
		{&pb.MapMachinesRequest{GroupBy: []string{"site", "rack"}},
			"berlin/r8: n8 NEW, x NEW|berlin/r9: n9 MAINTENANCE|berlin/r10: n10 NEW|berlin/r11: n11 NEW"},
		{&pb.MapMachinesRequest{GroupBy: []string{"label.team"}, ValueOf: "rack", Filter: "state=NEW"},
			": x NEW r8|db: n11 NEW r11|web: n8 NEW r8, n10 NEW r10"},
		{&pb.MapMachinesRequest{GroupBy: []string{"state"}, ValueOf: "labels.team", Filter: "machine_id=n*"},
			"MAINTENANCE: n9 MAINTENANCE db|NEW: n8 NEW web, n10 NEW web, n11 NEW db"},
		{&pb.MapMachinesRequest{GroupBy: []string{"rack"}, ValueOf: "rack", Filter: "rack in (r10, r8)"},
			"r8: n8 NEW r8, x NEW r8|r10: n10 NEW r10"},
		{&pb.MapMachinesRequest{Filter: "site=nowhere", GroupBy: []string{"site"}}, ""},
	} {
		if got := strings.Join(asLines(t, mapOf(r, c.q)), "|"); got != c.want {
			t.Errorf("%v:\n%s, want\n%s", c.q, got, c.want)
		}
	}
	values := mapOf(r, &pb.MapMachinesRequest{ValueOf: "rack"}).GetValues()
	if !slices.Equal(values, []string{"r8", "r9", "r10", "r11"}) {
		t.Errorf("values in no order: %v", values)
	}
}

// The map agrees with lists on every possible machine, now and at a moment.
func TestMapsAndListsAgreeOnEveryMachine(t *testing.T) {
	r := publictest.NewRig(t)
	count := storetest.EveryMachine(t, r.Store)
	at := clockOf(r)
	r.Register(&pb.Machine{MachineId: "later"})
	for _, filter := range []string{"", "state=ATTENTION", "phase=READY,state!=IDLE", "conditions.RMA=true"} {
		for _, q := range []*pb.MapMachinesRequest{
			{Filter: filter, ValueOf: "node_state"}, {Filter: filter, ValueOf: "node_state", AsOf: timestamppb.New(at)},
		} {
			var moment time.Time
			if q.GetAsOf() != nil {
				moment = at
			}
			want, got := statesListed(machinesOf(r, filter, moment, 1000)), statesMapped(mapOf(r, q))
			if !slices.Equal(want, got) || filter == "" && len(got) < count {
				t.Errorf("%v: %d mapped, %d listed of %d\n%v\n%v", q, len(got), len(want), count, head(got), head(want))
			}
		}
	}
}

// statesListed are the machines of a list, each with its state, the reason for it, and its place in its life.
func statesListed(all []*pb.Machine) (out []string) {
	for _, m := range all {
		st := m.GetStatus()
		out = append(out, strings.Join([]string{m.GetMachineId(), st.GetEffectiveState().String(),
			st.GetAttentionReason(), strings.ToLower(strings.TrimPrefix(st.GetNodeState().String(), "NODE_STATE_"))}, " "))
	}
	slices.Sort(out)
	return out
}

// statesMapped are the same of a map whose values are node_state.
func statesMapped(m *pb.MapMachinesResponse) (out []string) {
	for _, g := range m.GetGroups() {
		for i, id := range g.GetMachineIds() {
			reason := ""
			if len(g.GetMachineReasons()) > 0 {
				reason = m.GetReasons()[g.GetMachineReasons()[i]]
			}
			state := m.GetStates()[g.GetMachineStates()[i]]
			if state == "MAINTENANCE" {
				state = pb.MachineStatus_MAINTENANCE_IDLE.String()
			}
			out = append(out, strings.Join([]string{id, state, reason, m.GetValues()[g.GetMachineValues()[i]]}, " "))
		}
	}
	slices.Sort(out)
	return out
}

func head(all []string) []string { return all[:min(len(all), 5)] }

// What changes after a map comes after its cursor.
func TestAWatchGoesOnAfterAMap(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	settle(r)
	m := mapOf(r, &pb.MapMachinesRequest{})
	change(r, "m-001", "r1")()
	script(r, &pb.WatchMachinesRequest{Cursor: m.GetNextCursor()}, "CHANGED m-001")
}

func TestMapsKeepToTheSelections(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 12 {
		m := publictest.NewMachine(i)
		m.Spec.Site, m.Labels = []string{"a", "b"}[i%2], map[string]string{"team": []string{"web", "db", "ai"}[i%3]}
		r.Register(m)
	}
	at := timestamppb.New(clockOf(r))
	ctx := publictest.Within(t.Context(), "site=a", "labels.team=web")
	for _, asOf := range []*timestamppb.Timestamp{nil, at} {
		m, err := r.Machines.MapMachines(
			ctx,
			&pb.MapMachinesRequest{GroupBy: []string{"site"}, ValueOf: "labels.team", AsOf: asOf,
				Filter: "machine_id!=m-000"},
		)
		if err != nil {
			t.Fatal(err)
		}
		want := "a: m-002 NEW ai, m-004 NEW db, m-006 NEW web, m-008 NEW ai, m-010 NEW db|b: m-003 NEW web, m-009 NEW web"
		if got := strings.Join(asLines(t, m), "|"); got != want {
			t.Errorf("as of %v:\n%s, want\n%s", asOf, got, want)
		}
	}
	m, err := r.Machines.MapMachines(publictest.Within(t.Context(), "machine_id=m-002"),
		&pb.MapMachinesRequest{ValueOf: "labels.team", AsOf: at})
	if err != nil || !slices.Equal(m.GetValues(), []string{"ai"}) {
		t.Errorf("values of machines that the caller may not see: %v, %v", m.GetValues(), err)
	}
}

func TestWhatCannotBeMapped(t *testing.T) {
	r := publictest.NewRig(t, func(c *service.Config) { c.MostMapped = 3 })
	refused := func(q *pb.MapMachinesRequest, kind failure.Kind, reason, field string) {
		t.Helper()
		_, err := r.Machines.MapMachines(t.Context(), q)
		publictest.Wants(t, err, kind, reason, field)
	}
	refused(&pb.MapMachinesRequest{GroupBy: []string{"colour"}}, failure.KindInvalid, "INVALID_GROUP_BY", "group_by")
	refused(
		&pb.MapMachinesRequest{GroupBy: []string{"site", "rack", "group", "phase"}},
		failure.KindInvalid,
		"INVALID_GROUP_BY",
		"group_by",
	)
	refused(&pb.MapMachinesRequest{ValueOf: "colour"}, failure.KindInvalid, "INVALID_GROUP_BY", "value_of")
	refused(&pb.MapMachinesRequest{Filter: "colour=red"}, failure.KindInvalid, "INVALID_FILTER", "filter")
	refused(
		&pb.MapMachinesRequest{AsOf: timestamppb.New(time.Now().Add(time.Hour))},
		failure.KindInvalid,
		"INVALID_FIELD",
		"as_of",
	)
	refused(
		&pb.MapMachinesRequest{AsOf: timestamppb.New(time.Unix(1, 0))},
		failure.KindPrecondition,
		"MOMENT_NOT_KEPT",
		"as_of",
	)
	for i := range 4 {
		m := publictest.NewMachine(i)
		m.Spec.Site = []string{"one", "many", "many", "many"}[i]
		r.Register(m)
	}
	refused(&pb.MapMachinesRequest{}, failure.KindPrecondition, "TOO_MANY_GROUPS", "filter")
	if got := asLines(
		t,
		mapOf(r, &pb.MapMachinesRequest{Filter: "site=one"}),
	); !slices.Equal(
		got,
		[]string{": m-000 NEW"},
	) {
		t.Errorf("a part of a fleet that is too large: %v", got)
	}
}
