package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func count(r *publictest.Rig, filter string, by ...string) *pb.CountMachinesResponse {
	r.T.Helper()
	c, err := r.Machines.CountMachines(r.T.Context(), &pb.CountMachinesRequest{Filter: filter, GroupBy: by})
	if err != nil {
		r.T.Fatalf("count %q by %v: %v", filter, by, err)
	}
	return c
}

// asText writes groups as "value/value count".
func asText(c *pb.CountMachinesResponse) []string {
	var out []string
	for _, g := range c.GetGroups() {
		out = append(out, fmt.Sprintf("%s %d", strings.Join(g.GetValues(), "/"), g.GetCount()))
	}
	return out
}

func TestCountMachines(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 10 {
		m := publictest.NewMachine(i)
		m.Spec.Site, m.Spec.Rack = "berlin", fmt.Sprintf("r%d", i%3)
		m.Labels = map[string]string{"env": []string{"prod", "dev"}[i%2]}
		if i == 9 {
			m.Spec.Rack, m.Labels = "", nil
		}
		r.Register(m)
	}
	r.Maintenance("m-001")
	before := time.Now()
	c := count(r, "")
	if c.GetTotal() != 10 || len(c.GetGroups()) != 0 || c.GetAsOf().AsTime().Before(before.Add(-time.Minute)) {
		t.Errorf("all: %v", c)
	}
	for _, x := range []struct {
		filter string
		by     string
		want   string
	}{
		{"", "rack", "r0 3,r1 3,r2 3, 1"},
		{"rack=r*", "rack,labels.env", "r0/prod 2,r1/dev 2,r2/prod 2,r0/dev 1,r1/prod 1,r2/dev 1"},
		{"", "state", "NEW 9,MAINTENANCE 1"},
		{"rack!=*", "label.env", " 1"},
		{"labels.env=dev", "phase", "FACTORY_READY 3,MAINTENANCE 1"},
		{"state=MAINTENANCE", "node_state,site", "discovered/berlin 1"},
		{"machine_id in (m-001, m-002)", "conditions.RMA", "false 2"},
		{"phase in (MAINTENANCE, RMA)", "machine_id", "m-001 1"},
		{"image!=*,site=berlin", "image,region,provider", "//agent 10"},
		{"site=nowhere", "site", ""},
	} {
		if got := strings.Join(asText(count(r, x.filter, strings.Split(x.by, ",")...)), ","); got != x.want {
			t.Errorf("%q by %s: %q, want %q", x.filter, x.by, got, x.want)
		}
	}
	r.Register(&pb.Machine{MachineId: "m-gone"})
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-gone"}); err != nil {
		t.Fatal(err)
	}
	if c := count(r, ""); c.GetTotal() != 10 {
		t.Errorf("a deleted machine is counted: %v", c)
	}
}

// Counts and lists say the same of every machine that there can be, whatever is asked.
func TestCountsAndListsAgreeOnEveryMachine(t *testing.T) {
	r := publictest.NewRig(t)
	all := storetest.EveryMachine(t, r.Store)
	for _, key := range []string{"effective_state", "phase", "node_state", "conditions.Provisioned"} {
		c := count(r, "", key)
		sum := 0
		for _, g := range c.GetGroups() {
			if listed := len(ids(r, key+"="+g.GetValues()[0], 1000)); listed != int(g.GetCount()) {
				t.Errorf("%s: %v are counted, and %d listed", key, g, listed)
			}
			sum += int(g.GetCount())
		}
		if sum != all || c.GetTotal() != int32(all) {
			t.Errorf("%s: %d in groups, %d in all, of %d", key, sum, c.GetTotal(), all)
		}
	}
	for _, filter := range []string{
		"state!=IDLE", "state in (ATTENTION, BLOCKED)", "state not in (BUSY, NEW),phase=READY", "phase=PROVISIONING",
		"phase not in (PROVISIONING, RMA)", "phase in (RETIRED, MAINTENANCE, RMA)",
		"node_state in (active, offline),state=ATTENTION",
		"node_state!=active,conditions.RMA=false", "conditions.Reachable=true,conditions.Provisioned!=true",
		"machine_id=m-ready-active-*,state!=IDLE", "machine_id!=m-ready-*",
	} {
		listed := len(ids(r, filter, 1000))
		if c := count(r, filter); int(c.GetTotal()) != listed || listed == 0 {
			t.Errorf("%s: %d are counted, and %d listed", filter, c.GetTotal(), listed)
		}
	}
	_, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{GroupBy: []string{"machine_id"}})
	publictest.Wants(t, err, failure.KindPrecondition, "TOO_MANY_GROUPS", "group_by")
}

func TestWhatCannotBeCounted(t *testing.T) {
	r := publictest.NewRig(t)
	for _, by := range [][]string{
		{"colour"}, {""}, {"site", "site"}, {"state", "effective_state"}, {"site", "rack", "group", "phase"},
		{"labels."}, {"conditions.Happy"}, {"site=a"},
	} {
		_, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{GroupBy: by})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_GROUP_BY", "group_by")
	}
	_, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{Filter: "colour=red"})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter")
}

// listed are the machines of all pages of a list in an order.
func listed(r *publictest.Rig, q *pb.ListMachinesRequest) []string {
	r.T.Helper()
	var out []string
	publictest.Walk(r.T, func(token string) (string, error) {
		q.PageToken = token
		p, err := r.Machines.ListMachines(r.T.Context(), q)
		for _, m := range p.GetMachines() {
			out = append(out, m.GetMachineId())
		}
		return p.GetNextPageToken(), err
	})
	return out
}

func TestMachinesInOrder(t *testing.T) {
	r := publictest.NewRig(t)
	for id, rack := range map[string]string{
		"n10": "r2", "n9": "r10", "n2-b10": "r2", "n2-b9": "r10", "n09": "", "x": "r2", "n2": "r1",
		"n100000000000000000000001": "r2",
	} {
		r.Register(&pb.Machine{MachineId: id, Spec: &pb.MachineSpec{Rack: rack, Site: "s" + rack}})
	}
	r.Maintenance("x")
	r.Maintenance("n9")
	for order, want := range map[string]string{
		"machine_id":           "n2 n2-b9 n2-b10 n09 n9 n10 n100000000000000000000001 x",
		"machine_id desc":      "x n100000000000000000000001 n10 n9 n09 n2-b10 n2-b9 n2",
		"rack":                 "n09 n2 n2-b10 n10 n100000000000000000000001 x n2-b9 n9",
		"rack desc":            "n9 n2-b9 x n100000000000000000000001 n10 n2-b10 n2 n09",
		"site":                 "n09 n2 n2-b10 n10 n100000000000000000000001 x n2-b9 n9",
		"effective_state":      "n9 x n2 n2-b9 n2-b10 n09 n10 n100000000000000000000001",
		"state  desc ":         "n100000000000000000000001 n10 n09 n2-b10 n2-b9 n2 x n9",
		"effective_state desc": "n100000000000000000000001 n10 n09 n2-b10 n2-b9 n2 x n9",
	} {
		for _, size := range []int32{0, 1, 3} {
			if got := strings.Join(listed(r, &pb.ListMachinesRequest{OrderBy: order, PageSize: size}), " "); got != want {
				t.Errorf("%s, pages of %d:\n%s, want\n%s", order, size, got, want)
			}
		}
	}
	if p, err := r.Machines.ListMachines(t.Context(),
		&pb.ListMachinesRequest{OrderBy: "rack", PageSize: 1}); err != nil || p.GetTotalSize() != 8 {
		t.Errorf("a list in an order has %d machines in all, %v", p.GetTotalSize(), err)
	}
	newest := listed(r, &pb.ListMachinesRequest{OrderBy: "updated_at desc", PageSize: 2})
	oldest := listed(r, &pb.ListMachinesRequest{OrderBy: "updated_at", PageSize: 3})
	if slices.Reverse(newest); len(oldest) != 8 || !slices.Equal(newest, oldest) ||
		!slices.Contains(oldest[6:], "x") || !slices.Contains(oldest[6:], "n9") {
		t.Errorf("by time %v, and the other way round %v", oldest, newest)
	}
}

// A list in an order has each machine that there can be once, also where its filter is several statements.
func TestOrdersOfEveryMachine(t *testing.T) {
	r := publictest.NewRig(t)
	storetest.EveryMachine(t, r.Store)
	want := ids(r, "state=ATTENTION,machine_id=m-ready-*", 1000)
	slices.Sort(want)
	for _, order := range []string{"machine_id", "rack desc", "updated_at", "effective_state"} {
		got := listed(r,
			&pb.ListMachinesRequest{Filter: "state=ATTENTION,machine_id=m-ready-*", OrderBy: order, PageSize: 1000})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %d machines, want %d", order, len(got), len(want))
		}
	}
}

func TestOrdersThatAreNone(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		r.Register(publictest.NewMachine(i))
	}
	for _, order := range []string{"colour", "rack up", "rack,site", " ", "rack desc desc"} {
		_, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{OrderBy: order})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_ORDER_BY", "order_by")
	}
	p, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{OrderBy: "rack", PageSize: 1})
	if err != nil || p.GetNextCursor() == "" {
		t.Fatalf("%v, %v", p, err)
	}
	for _, other := range []string{"", "rack desc", "site"} {
		_, err := r.Machines.ListMachines(t.Context(),
			&pb.ListMachinesRequest{OrderBy: other, PageSize: 1, PageToken: p.GetNextPageToken()})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_PAGE_TOKEN", "page_token")
	}
	_, err = r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{OrderBy: "rack", Cursor: p.GetNextCursor()})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_ORDER_BY", "order_by")
}

func search(t *testing.T, r *publictest.Rig, text string, limit int32) (found []string, more bool) {
	t.Helper()
	a, err := r.Machines.SearchMachines(t.Context(), &pb.SearchMachinesRequest{Text: text, Limit: limit})
	if err != nil {
		t.Fatalf("search %q: %v", text, err)
	}
	for _, h := range a.GetHits() {
		found = append(found, fmt.Sprintf("%s %s=%s", h.GetMachineId(), h.GetField(), h.GetValue()))
	}
	return found, a.GetMore()
}

// TestSearchMachines: a machine is found by each thing that a person may have of it, as long as it is so.
func TestSearchMachines(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		m := publictest.NewMachine(i)
		m.Spec.MacAddresses = []string{fmt.Sprintf("52:54:00:00:12:0%d", i)}
		m.Spec.Serial, m.Spec.Rack = fmt.Sprintf("SN-%d", i), fmt.Sprintf("r%d", i)
		m.Spec.BmcEndpoint = fmt.Sprintf("10.9.0.%d:443", i+1)
		m.Labels = map[string]string{"asset": fmt.Sprintf("A_7-%d", i)}
		r.Register(m)
	}
	for text, want := range map[string][]string{
		"M-001":              {"m-001 machine_id=m-001"},
		"m-001.example.org.": {"m-001 machine_id=m-001"},
		"sn-2":               {"m-002 serial=sn-2"},
		"5254.0000.1201":     {"m-001 mac=52:54:00:00:12:01"},
		"52-54-00-00-12":     {"m-000 mac=52:54:00:00:12:00", "m-001 mac=52:54:00:00:12:01", "m-002 mac=52:54:00:00:12:02"},
		"10.9.0.3":           {"m-002 bmc=10.9.0.3:443"},
		"a_7-1":              {"m-001 label=asset=a_7-1"},
		"_":                  {"m-000 label=asset=a_7-0", "m-001 label=asset=a_7-1", "m-002 label=asset=a_7-2"},
		"%":                  nil, "MACHINE_ID": nil,
		"' OR true --": nil,
	} {
		if found, more := search(t, r, text, 0); !slices.Equal(found, want) || more {
			t.Errorf("%s: %q %v, want %q", text, found, more, want)
		}
	}
	inRack, err := r.Machines.SearchMachines(
		publictest.Within(t.Context(), "rack=r1"),
		&pb.SearchMachinesRequest{Text: "m-"},
	)
	if err != nil || len(inRack.GetHits()) != 1 || inRack.GetHits()[0].GetMachineId() != "m-001" {
		t.Errorf("a caller of one rack: %v, %v", inRack, err)
	}
	if found, more := search(t, r, "m-", 2); len(found) != 2 || !more {
		t.Errorf("two of three: %q, more %v", found, more)
	}
	m := &pb.Machine{MachineId: "m-001", Spec: &pb.MachineSpec{Serial: "other"}}
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: m}); err != nil {
		t.Fatal(err)
	}
	if found, _ := search(t, r, "sn-1", 0); found != nil {
		t.Errorf("a number that it no longer has: %q", found)
	}
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-002"}); err != nil {
		t.Fatal(err)
	}
	if found, _ := search(t, r, "sn-2", 0); found != nil {
		t.Errorf("a deleted machine: %q", found)
	}
	for _, bad := range []*pb.SearchMachinesRequest{{}, {Text: "x", Limit: 101}, {Text: "x", Limit: -1}, {Text: "a\x00"}} {
		if _, err := r.Machines.SearchMachines(t.Context(), bad); failure.From(err).Reason != "INVALID_FIELD" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
