package machine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// clockOf is the time of the database.
func clockOf(r *publictest.Rig) (at time.Time) {
	r.T.Helper()
	if err := r.Store.DB.Pool().QueryRow(r.T.Context(), "SELECT clock_timestamp()").Scan(&at); err != nil {
		r.T.Fatal(err)
	}
	return at
}

// machinesOf reads a whole list; a zero moment means now.
func machinesOf(r *publictest.Rig, filter string, at time.Time, size int32) (all []*pb.Machine) {
	r.T.Helper()
	req := &pb.ListMachinesRequest{Filter: filter, PageSize: size}
	if !at.IsZero() {
		req.AsOf = timestamppb.New(at)
	}
	publictest.Walk(r.T, func(token string) (string, error) {
		req.PageToken = token
		page, err := r.Machines.ListMachines(r.T.Context(), req)
		all = append(all, page.GetMachines()...)
		return page.GetNextPageToken(), err
	})
	return all
}

// asKept takes away what no moment has.
func asKept(all []*pb.Machine) []*pb.Machine {
	for _, m := range all {
		m.Status.LastHeartbeatAt, m.Status.Provider = nil, nil
		for _, c := range m.GetStatus().GetConditions() {
			c.ObservedAt, c.ObservedBy = nil, ""
		}
	}
	return all
}

// same reports whether two lists are equal in every field.
func same(a, b []*pb.Machine) bool {
	return slices.EqualFunc(a, b, func(x, y *pb.Machine) bool { return proto.Equal(x, y) })
}

// snapshot is what the calls answered at a moment.
type snapshot struct {
	at       time.Time
	machines []*pb.Machine
	filters  map[string][]*pb.Machine
	counts   map[string][]string
}

var (
	momentFilters = []string{
		"state=ATTENTION", "rack in (r1, r2),state!=IDLE", "labels.env=prod", "conditions.Reachable=true", "phase=RMA",
		"machine_id=m-0*,node_state!=active",
	}
	momentKeys = []string{"effective_state", "rack,labels.env", "phase,node_state"}
)

func snap(r *publictest.Rig) snapshot {
	r.T.Helper()
	s := snapshot{at: clockOf(r), filters: map[string][]*pb.Machine{}, counts: map[string][]string{}}
	s.machines = asKept(machinesOf(r, "", time.Time{}, 0))
	for _, f := range momentFilters {
		s.filters[f] = asKept(machinesOf(r, f, time.Time{}, 0))
		slices.SortFunc(
			s.filters[f],
			func(a, b *pb.Machine) int { return strings.Compare(a.GetMachineId(), b.GetMachineId()) },
		)
	}
	for _, keys := range momentKeys {
		s.counts[keys] = asText(count(r, "", strings.Split(keys, ",")...))
	}
	return s
}

// equals asks for the moment, and compares the answers with those of then.
func (s snapshot) equals(r *publictest.Rig) {
	r.T.Helper()
	for _, size := range []int32{0, 3} {
		if got := machinesOf(r, "", s.at, size); !same(got, s.machines) {
			r.T.Errorf("at %v, by pages of %d:\n%v\nwas\n%v", s.at, size, got, s.machines)
		}
	}
	for f, want := range s.filters {
		if got := machinesOf(r, f, s.at, 2); !same(got, want) {
			r.T.Errorf("at %v, %s:\n%v\nwas\n%v", s.at, f, got, want)
		}
	}
	for keys, want := range s.counts {
		c, err := r.Machines.CountMachines(r.T.Context(), &pb.CountMachinesRequest{GroupBy: strings.Split(keys, ","),
			AsOf: timestamppb.New(s.at)})
		if err != nil || !slices.Equal(asText(c), want) || int(c.GetTotal()) != len(s.machines) ||
			!c.GetAsOf().AsTime().Equal(s.at) {
			r.T.Errorf("at %v by %s: %v, was %v, %v", s.at, keys, c, want, err)
		}
	}
	for _, want := range s.machines {
		got, err := r.Machines.GetMachine(r.T.Context(),
			&pb.GetMachineRequest{MachineId: want.GetMachineId(), AsOf: timestamppb.New(s.at)})
		if err != nil || !proto.Equal(got, want) {
			r.T.Errorf("at %v: %v, was %v, %v", s.at, got, want, err)
		}
	}
}

// past lives a random life by the calls of the API and of agents.
type past struct {
	*publictest.Rig
	rnd    *rand.Rand
	agents map[string]storetest.Enrolled
	n      int
}

// step lets one thing happen to one machine. What is refused is no fault: it depends on what was before.
func (p *past) step() {
	p.n++
	ctx, id := p.T.Context(), fmt.Sprintf("m-%03d", p.rnd.IntN(8))
	request := fmt.Sprint("r-", p.n)
	spec := &pb.MachineSpec{Rack: fmt.Sprint("r", p.rnd.IntN(3)), Location: fmt.Sprint("u", p.rnd.IntN(40))}
	labels := map[string]string{"env": []string{"prod", "dev"}[p.rnd.IntN(2)], "n": fmt.Sprint(p.n)}
	switch p.rnd.IntN(9) {
	case 0:
		_, _ = p.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{
			Machine: &pb.Machine{MachineId: id, Spec: spec, Labels: labels}})
	case 1, 2:
		_, _ = p.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
			Machine: &pb.Machine{MachineId: id, Spec: spec, Labels: labels}})
	case 3:
		op, err := p.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: id, RequestId: request})
		p.goOn(op, err)
	case 4:
		op, err := p.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: id, RequestId: request})
		p.goOn(op, err)
	case 5:
		op, err := p.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: id, RequestId: request})
		p.goOn(op, err)
	case 6:
		_, _ = p.Admin.SetMachineFlag(ctx, &pb.SetMachineFlagRequest{MachineId: id, Flag: "RMA", Value: p.rnd.IntN(2) == 0})
	case 7:
		p.boot(id)
	case 8:
		if p.rnd.IntN(4) == 0 {
			_, _ = p.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: id})
		}
	}
}

// goOn takes some steps of an operation, and may cancel it.
func (p *past) goOn(op *pb.Operation, err error) {
	if err != nil {
		return
	}
	for range p.rnd.IntN(4) {
		_ = p.Engine.Look(p.T.Context(), op.GetOperationId())
	}
	if p.rnd.IntN(3) == 0 {
		_, _ = p.Machines.CancelOperation(p.T.Context(), &pb.CancelOperationRequest{OperationId: op.GetOperationId()})
		_ = p.Engine.Look(p.T.Context(), op.GetOperationId())
	}
}

// boot has the machine's own agent come, after a boot. It knows machines that are not deleted.
func (p *past) boot(id string) {
	m, err := p.Machines.GetMachine(p.T.Context(), &pb.GetMachineRequest{MachineId: id})
	if err != nil {
		return
	}
	a, known := p.agents[id]
	if !known {
		if m.GetStatus().GetNodeState() != pb.NodeState_NODE_STATE_DISCOVERED {
			return
		}
		a = storetest.Enrol(p.T, p.Store, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
		p.agents[id] = a
	}
	storetest.Open(p.T, p.Store, a.Hello("st-1", fmt.Sprint("boot-", p.n)))
	if !known {
		a.Arrived(p.T, p.Store)
	}
}

// What the API answers for a moment is what it answered at that moment, in every field that is kept.
// INGOT_MOMENT_STEPS sets how much happens, INGOT_MOMENT_SEED what.
func TestMomentsAreWhatWasAnsweredThen(t *testing.T) {
	r := publictest.NewRig(t)
	steps, seed := storetest.Setting(t, "INGOT_MOMENT_STEPS", 400), storetest.Setting(t, "INGOT_MOMENT_SEED", 1)
	p := &past{Rig: r, rnd: rand.New(rand.NewPCG(uint64(seed), 0)), agents: map[string]storetest.Enrolled{}}
	storetest.Lease(t, r.Store)
	snaps := []snapshot{snap(r)}
	for range steps {
		p.step()
		if p.rnd.IntN(8) == 0 {
			snaps = append(snaps, snap(r))
		}
	}
	for _, s := range snaps {
		s.equals(r)
	}
	states := map[string]bool{}
	for _, s := range snaps {
		for _, m := range s.machines {
			states[m.GetStatus().GetEffectiveState().String()] = true
		}
	}
	changes := storetest.Count(t, r.Store, "SELECT count(*) FROM machine_states")
	deleted := storetest.Count(t, r.Store, "SELECT count(*) FROM machines WHERE deleted_at IS NOT NULL")
	t.Logf("%d moments, %d states, %d machines deleted; seen: %v", len(snaps), changes, deleted, states)
	if len(states) < 5 || deleted == 0 {
		t.Errorf("the life was too quiet: %v, %d deleted", states, deleted)
	}
	// The moment of the history's entry is that of the list.
	storetest.Intact(t, r.Store, "")
	if n := storetest.Count(t, r.Store, `SELECT count(*) FROM machine_states s WHERE NOT EXISTS (
		SELECT 1 FROM machine_timeline t WHERE t.machine_id = s.machine_id AND t.ts = s.at)`); n > changes/2 {
		t.Errorf("%d of %d states are of no entry's time", n, changes)
	}
	// Words that the history has as a digest.
	if n := storetest.Count(t, r.Store, `SELECT count(*) FROM machine_words w WHERE NOT EXISTS (
		SELECT 1 FROM machine_timeline t WHERE t.machine_id = w.machine_id
			AND t.fields::text LIKE '%' || encode(w.digest, 'hex') || '%')`); n != 0 {
		t.Errorf("the histories do not have %d specs", n)
	}
}

// A transaction is in a moment wholly or not at all, whatever a savepoint took back.
func TestAMomentHasWholeTransactions(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"}})
	before := clockOf(r)
	tx, err := r.Store.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		`SET CONSTRAINTS ALL DEFERRED`,
		`UPDATE machines SET labels = '{"env": "dev"}' WHERE machine_id = 'm-1'`, `SAVEPOINT one`,
		`UPDATE machines SET labels = '{"env": "lost"}' WHERE machine_id = 'm-1'`, `ROLLBACK TO one`,
		`INSERT INTO machine_conditions VALUES ('m-1', 'RMA', true, '', '', now())`,
	} {
		if _, err := tx.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	open := clockOf(r)
	if got := machinesOf(r, "", open, 0); got[0].GetLabels()["env"] != "prod" {
		t.Errorf("what is not committed is seen: %v", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap(r).equals(r)
	for _, at := range []time.Time{before, open} {
		got := machinesOf(r, "", at, 0)
		if len(got) != 1 || got[0].GetLabels()["env"] != "prod" || len(got[0].GetStatus().GetConditions()) != 0 {
			t.Errorf("at %v: %v", at, got)
		}
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM machine_states"); n != 2 {
		t.Errorf("%d states of two transactions", n)
	}
}

func TestWhatNoMomentAnswers(t *testing.T) {
	r := publictest.NewRig(t)
	first := clockOf(r)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{ExternalId: "x-1"}})
	r.Register(&pb.Machine{MachineId: "m-2"})
	there := timestamppb.New(clockOf(r))
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-2"}); err != nil {
		t.Fatal(err)
	}
	now := timestamppb.New(clockOf(r))
	list := func(change func(*pb.ListMachinesRequest)) error {
		req := &pb.ListMachinesRequest{AsOf: now}
		change(req)
		_, err := r.Machines.ListMachines(t.Context(), req)
		return err
	}
	get := func(id string, at *timestamppb.Timestamp) error {
		_, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: id, AsOf: at})
		return err
	}
	long, later := timestamppb.New(first.Add(-24*time.Hour)), timestamppb.New(first.Add(time.Hour))
	for _, c := range []struct {
		err           error
		kind          failure.Kind
		reason, field string
	}{
		{list(func(r *pb.ListMachinesRequest) { r.OrderBy = "rack" }), failure.KindInvalid, "INVALID_ORDER_BY", "order_by"},
		{list(func(r *pb.ListMachinesRequest) { r.Cursor = "x" }), failure.KindInvalid, "INVALID_FIELD", "cursor"},
		{list(func(r *pb.ListMachinesRequest) { r.UpdatedSince = there }), failure.KindInvalid, "INVALID_FIELD",
			"updated_since"},
		{list(func(r *pb.ListMachinesRequest) { r.Filter = "colour=red" }), failure.KindInvalid, "INVALID_FILTER", "filter"},
		{list(func(r *pb.ListMachinesRequest) { r.AsOf = later }), failure.KindInvalid, "INVALID_FIELD", "as_of"},
		{list(func(r *pb.ListMachinesRequest) { r.AsOf = long }), failure.KindPrecondition, "MOMENT_NOT_KEPT", "as_of"},
		{get("m-1", long), failure.KindPrecondition, "MOMENT_NOT_KEPT", "as_of"},
		{get("m-1", timestamppb.New(first)), failure.KindNotFound, "MACHINE_NOT_FOUND", "machine_id"},
		{get("m-2", now), failure.KindNotFound, "MACHINE_NOT_FOUND", "machine_id"},
		{get("m-3", now), failure.KindNotFound, "MACHINE_NOT_FOUND", "machine_id"},
		{get("", now), failure.KindInvalid, "INVALID_FIELD", "machine_id"},
	} {
		publictest.Wants(t, c.err, c.kind, c.reason, c.field)
	}
	if err := get("m-2", there); err != nil {
		t.Errorf("a machine that was deleted later: %v", err)
	}
	_, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{ExternalId: "x-1", AsOf: now})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "external_id")
	_, err = r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{AsOf: long})
	publictest.Wants(t, err, failure.KindPrecondition, "MOMENT_NOT_KEPT", "as_of")
	if since := failure.From(err).Metadata["since"]; since == "" || !strings.Contains(err.Error(), since) {
		t.Errorf("%v names no time", err)
	}
	// A page of a moment goes on at that moment alone.
	page, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{AsOf: there, PageSize: 1})
	if err != nil || page.GetNextPageToken() == "" || page.GetTotalSize() != 2 || page.GetNextCursor() != "" {
		t.Fatalf("%v, %v", page, err)
	}
	err = list(func(r *pb.ListMachinesRequest) { r.PageToken = page.GetNextPageToken() })
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_PAGE_TOKEN", "page_token")
}

// Roles for some machines show the past of those, wherever they were then.
func TestMomentsKeepToTheSelections(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 6 {
		m := publictest.NewMachine(i)
		m.Spec.Site = []string{"a", "b"}[i%2]
		r.Register(m)
	}
	at := timestamppb.New(clockOf(r))
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-001",
		Spec: &pb.MachineSpec{Site: "a"}}}); err != nil {
		t.Fatal(err)
	}
	ctx := publictest.Within(t.Context(), "site=a")
	var got []string
	publictest.Walk(t, func(token string) (string, error) {
		page, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{AsOf: at, PageSize: 2, PageToken: token})
		for _, m := range page.GetMachines() {
			got = append(got, m.GetMachineId()+" "+m.GetSpec().GetSite())
		}
		return page.GetNextPageToken(), err
	})
	if want := "m-000 a,m-001 b,m-002 a,m-004 a"; strings.Join(got, ",") != want {
		t.Errorf("%v, want %s", got, want)
	}
	_, err := r.Machines.CountMachines(ctx, &pb.CountMachinesRequest{AsOf: at})
	publictest.Wants(t, err, failure.KindDenied, "SELECTION_TOO_NARROW", "")
	_, err = r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-003", AsOf: at})
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
}

// After retention moments are refused, and those that are left are what they were.
func TestRetentionOfMoments(t *testing.T) {
	r := publictest.NewRig(t)
	p := &past{Rig: r, rnd: rand.New(rand.NewPCG(7, 0)), agents: map[string]storetest.Enrolled{}}
	storetest.Lease(t, r.Store)
	var snaps []snapshot
	for range 6 {
		for range 25 {
			p.step()
		}
		snaps = append(snaps, snap(r))
	}
	states, words := "SELECT count(*) FROM machine_states", "SELECT count(*) FROM machine_words"
	before, said := storetest.Count(t, r.Store, states), storetest.Count(t, r.Store, words)
	for range 2 {
		if err := r.Store.Past.ForgetStates(t.Context(), snaps[3].at); err != nil {
			t.Fatal(err)
		}
	}
	after := storetest.Count(t, r.Store, states)
	t.Logf("%d states and %d specs, %d and %d are left", before, said, after, storetest.Count(t, r.Store, words))
	if after >= before || storetest.Count(t, r.Store, words) >= said {
		t.Errorf("nothing was removed")
	}
	for _, s := range snaps[3:] {
		s.equals(r)
	}
	_, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{AsOf: timestamppb.New(snaps[2].at)})
	publictest.Wants(t, err, failure.KindPrecondition, "MOMENT_NOT_KEPT", "as_of")
}

// Any minute of a busy day is there quickly. INGOT_MOMENT_MACHINES and INGOT_MOMENT_CHANGES set the size of the fleet and
// of its past; the changes are written by statements on many machines, which is how an engine under load writes them.
func TestAMomentOfABusyDay(t *testing.T) {
	r := publictest.NewRig(t)
	machines := storetest.Setting(t, "INGOT_MOMENT_MACHINES", 500)
	changes := storetest.Setting(t, "INGOT_MOMENT_CHANGES", 5000)
	begin := time.Now()
	if err := storetest.ExecSQL(t, r.Store, `INSERT INTO machines
		(machine_id, labels, spec, phase, node_state, node_state_changed_at, created_at)
		SELECT 'm-' || n, jsonb_build_object('env', 'e' || n % 5), jsonb_build_object('site', 'default', 'provider', 'agent',
			'rack', 'r' || n / 40, 'serial', 'sn-' || n, 'mac_addresses', jsonb_build_array('52:54:00:00:00:01')),
			'READY', 'active', now(), now() FROM generate_series(1, $1::int) n`, machines); err != nil {
		t.Fatal(err)
	}
	if err := storetest.ExecSQL(t, r.Store, `INSERT INTO machine_conditions
		SELECT machine_id, c, true, 'Session', 'since the last boot of the machine', now()
		FROM machines, unnest(ARRAY['Provisioned', 'Reachable', 'BMCReachable']) c`); err != nil {
		t.Fatal(err)
	}
	var snaps []snapshot
	const together = 500
	for n := range changes / together {
		if err := storetest.ExecSQL(t, r.Store, `UPDATE machines SET boot_id = 'boot-' || $2::int,
				phase = (ARRAY['READY', 'MAINTENANCE', 'FACTORY_READY'])[1 + (random() * 2)::int]
			WHERE machine_id IN (SELECT machine_id FROM machines ORDER BY random() LIMIT $1)`, together, n); err != nil {
			t.Fatal(err)
		}
		if n%(changes/together/4) == 0 {
			snaps = append(snaps, snapshot{at: clockOf(r), machines: asKept(machinesOf(r, "", time.Time{}, 1000))})
		}
	}
	_ = storetest.ExecSQL(t, r.Store, "ANALYZE machines, machine_states, machine_words")
	states := storetest.Count(t, r.Store, "SELECT count(*) FROM machine_states")
	size := storetest.Count(
		t,
		r.Store,
		"SELECT pg_total_relation_size('machine_states') + pg_total_relation_size('machine_words')",
	)
	t.Logf("%d machines, %d states written in %v, %d bytes each", machines, states, time.Since(begin), size/states)
	for _, s := range snaps {
		began := time.Now()
		got := machinesOf(r, "", s.at, 1000)
		t.Logf("%d machines as of %v ago in %v", len(got), time.Since(s.at).Round(time.Second), time.Since(began))
		if !same(got, s.machines) {
			t.Errorf("at %v the list is not what it was", s.at)
		}
		began = time.Now()
		c, err := r.Machines.CountMachines(t.Context(), &pb.CountMachinesRequest{GroupBy: []string{"effective_state"},
			AsOf: timestamppb.New(s.at)})
		if err != nil || int(c.GetTotal()) != machines {
			t.Errorf("%v, %v", c, err)
		}
		t.Logf("counted in %v: %v", time.Since(began), asText(c))
		began = time.Now()
		m := mapOf(r, &pb.MapMachinesRequest{GroupBy: []string{"site", "rack"}, ValueOf: "node_state",
			AsOf: timestamppb.New(s.at)})
		t.Logf("mapped in %v", time.Since(began))
		if !slices.Equal(statesMapped(m), statesListed(got)) {
			t.Errorf("at %v the map is not what it was", s.at)
		}
	}
}
