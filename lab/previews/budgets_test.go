package previews_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

var budgeted = flag.Int("budget-machines", 30, "machines of the fleet on which TestBudgetsHold tries every verb")

// budgetWorld is a fleet in service under budgets of both harms.
type budgetWorld struct {
	*world
	ctx      context.Context // of an operator
	agentOf  map[string]*simAgent
	racks    int
	limits   limits
	seed     uint64
	open     []string // operations that have not ended
	rollouts []string
	turn     int
	begun    map[string]int
	most     counts
}

// limits are the budgets of the fleet; those of a rack and of a site hold for each.
type limits struct{ out, outOfRack, written, writtenOfSite int }

// counts are machines out of service, and machines that lose data, at one moment.
type counts struct{ out, written int }

// TestBudgetsHold: while an operator asks for every verb, on one machine and on many, cancels, relabels, regroups and
// moves machines, and an admin moves some too, no more machines than the budgets allow are out of service, or lose data.
func TestBudgetsHold(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(storetest.Now().UnixNano())
	}
	b := newBudgetWorld(t, first, *budgeted)
	steps := 400 + 8**budgeted
	for i := 0; i < steps || i < 10*steps && len(b.untried()) > 0; i++ { // a short walk may not come by a verb
		b.step()
		b.check()
	}
	t.Logf("seed %d: %d machines, begun %v; most out of service %d of %d, most losing data %d of %d", first, *budgeted,
		b.begun, b.most.out, b.limits.out, b.most.written, b.limits.written)
	if left := b.untried(); len(left) > 0 {
		t.Errorf("in %d steps the walk did not come by %v", 10*steps, left)
	}
}

// untried returns what the walk has yet to come by: verbs, and budgets that were hardly used.
func (b *budgetWorld) untried() (left []string) {
	if b.most.out < b.limits.out/2 || b.most.written == 0 {
		left = append(left, "budgets near their limits")
	}
	for _, verb := range []string{"REBOOT", "ENTER_MAINTENANCE", "EXIT_MAINTENANCE", "REPAVE", "DRAINING", "rollout"} {
		if b.begun[verb] == 0 {
			left = append(left, verb)
		}
	}
	return left
}

func newBudgetWorld(t *testing.T, seed uint64, machines int) *budgetWorld {
	t.Helper()
	w := &world{Rig: publictest.NewRig(t), rand: rand.New(rand.NewPCG(seed, 2)), agents: map[string]*simAgent{}}
	storetest.Lease(t, w.Store)
	w.exec(`INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes,
		minimum_disk_bytes, created_at) VALUES ('tiny', 'os', 'amd64', 'raw.zst', 'cc', 'dd', 100, 10, 200, now())`)
	b := &budgetWorld{
		world:   w,
		seed:    seed,
		racks:   max(3, machines/20),
		agentOf: map[string]*simAgent{},
		begun:   map[string]int{},
		ctx:     metadata.AppendToOutgoingContext(t.Context(), "test-caller", "operator", "test-scope", "operate"),
	}
	b.limits = limits{
		out:           max(3, machines/12),
		outOfRack:     2,
		written:       max(2, machines/10),
		writtenOfSite: max(2, machines/30),
	}
	for i := range machines {
		b.inService(i)
	}
	for _, g := range []*pb.Budget{
		{Name: "out", Domain: "fleet", AtOnce: int32(b.limits.out), Harm: pb.Budget_INTERRUPTS},
		{Name: "racks", Domain: "label:rack", AtOnce: int32(b.limits.outOfRack), Harm: pb.Budget_INTERRUPTS},
		{Name: "sites", Domain: "site", AtOnce: int32(b.limits.writtenOfSite)},
		{Name: "fleet", Domain: "fleet", AtOnce: int32(b.limits.written)},
	} {
		if _, err := w.Budgets.SetBudget(t.Context(), &pb.SetBudgetRequest{Budget: g}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// inService registers a machine with an agent that does everything, and brings it into service.
func (b *budgetWorld) inService(i int) {
	m := &machine{id: fmt.Sprintf("m-%d", i), provider: "agent", mac: fmt.Sprintf("52:54:00:00:%02x:%02x", i/256, i%256),
		simulated: true}
	registered := &pb.Machine{MachineId: m.id, Spec: &pb.MachineSpec{Provider: m.provider, Site: fmt.Sprint("s", i%3),
		MacAddresses: []string{m.mac}, DefaultImageRef: "tiny"}}
	if rack := fmt.Sprint("r", i%b.racks); i%2 == 0 {
		registered.Labels = map[string]string{"rack": rack}
	} else {
		registered.Spec.Rack = rack
	}
	b.Register(registered)
	b.machines = append(b.machines, m)
	a := b.enrol(m.id, agentstore.NewToken{TokenID: "t-" + m.id, MachineID: m.id}, m)
	a.simulated = true
	a.caps = []string{"reboot", "netboot", "reconfig", "join", "repave", "erase", "reset_devices", "test_hardware"}
	b.agentOf[m.id] = a
	b.connect(a)
	doc := fmt.Sprintf(`{"system": {"serial": "sn-%s"}, "cpu": {"architecture": "amd64"}, "disks": [{"name": "sda",
		"serial": "QM1", "size_bytes": 1073741824}], "nics": [{"name": "eth0", "mac": %q}]}`, m.id, m.mac)
	k := sessionstore.EventKey{AgentID: a.ID, StateID: a.state, Seq: 1}
	if err := b.Store.Sessions.InventoryEvent(b.T.Context(), k, m.id, "h", []byte(doc), false,
		storetest.Now()); err != nil {
		b.T.Fatal(err)
	}
	if _, err := b.Store.NodeStates.AdmitHealthy(b.T.Context(), storetest.Now()); err != nil {
		b.T.Fatal(err)
	}
	b.Maintenance(m.id)
	op, err := b.Machines.ExitMaintenance(b.T.Context(), &pb.ExitMaintenanceRequest{MachineId: m.id, RequestId: "serve"})
	if err != nil {
		b.T.Fatal(err)
	}
	storetest.Decide(b.T, b.Store, op.GetOperationId(), operation.Evaluate{})
	if s := storetest.Machine(b.T, b.Store, m.id).GetStatus(); s.GetEffectiveState() != pb.MachineStatus_IDLE {
		b.T.Fatalf("%s is %s: %s", m.id, s.GetEffectiveState(), s.GetAttentionMessage())
	}
}

func (b *budgetWorld) request() string { b.turn++; return fmt.Sprint("q-", b.turn) }

// noted keeps an operation that a call has begun. What is refused did not happen.
func (b *budgetWorld) noted(verb, id string, err error) {
	if err != nil || id == "" {
		return
	}
	b.begun[verb]++
	if !slices.Contains(b.open, id) {
		b.open = append(b.open, id)
	}
}

// step is one thing that somebody does, an agent or the engine among them.
func (b *budgetWorld) step() {
	id := b.machines[b.rand.IntN(len(b.machines))].id
	switch b.rand.IntN(12) {
	case 0:
		b.run(id, b.oneOf("REBOOT", "ENTER_MAINTENANCE"), "")
	case 1:
		b.run(b.away(id), b.oneOf("REPAVE", "REPAVE", "TEST_HARDWARE", "EXIT_MAINTENANCE", "EXIT_MAINTENANCE", ""),
			b.oneOf("erase", "drain", "leave"))
	case 2:
		b.leaves(id)
	case 3:
		b.bulk()
	case 4:
		b.relabels(id)
	case 5:
		b.repairs(id)
	case 6:
		if len(b.open) > 0 && b.chance(20) { // it may have begun, or ended
			_, _ = b.Machines.CancelOperation(b.ctx,
				&pb.CancelOperationRequest{OperationId: b.open[b.rand.IntN(len(b.open))]})
		}
	default:
		b.work()
	}
}

// away returns a machine that is out of service, if there is one.
func (b *budgetWorld) away(otherwise string) string {
	all := slices.Sorted(maps.Keys(b.state()))
	if len(all) == 0 {
		return otherwise
	}
	return all[b.rand.IntN(len(all))]
}

func (b *budgetWorld) run(id, kind, plan string) {
	if kind != "" {
		plan = ""
	}
	r, err := b.Runs.StartRun(b.ctx, &pb.StartRunRequest{MachineId: id, RequestId: b.request(), Type: kind, PlanId: plan})
	b.noted(kind+plan, r.GetRunId(), err)
}

// leaves asks for a way out of the inventory, or for what passes through it.
func (b *budgetWorld) leaves(id string) {
	to := b.oneOf("DRAINING", "DRAINING", "REPROVISION", "DEPROVISIONING", "RETIRED", "MIGRATING")
	switch b.rand.IntN(3) {
	case 0:
		op, err := b.Workflows.StartWorkflow(b.ctx, &pb.StartWorkflowRequest{MachineId: id, RequestId: b.request(),
			Kind: pb.Workflow_DECOMMISSION, EnterMaintenance: b.chance(50), Mode: pb.Workflow_Mode(
				pb.Workflow_Mode_value[b.oneOf("SOFT_RESET", "REIMAGE", "STORAGE_CLEANUP")])})
		b.noted("DECOMMISSION", op.GetOperationId(), err)
	case 1:
		op, err := b.Nodes.TransitionNode(b.ctx, &pb.TransitionNodeRequest{NodeId: id, RequestId: b.request(),
			Comment: "drawn", Force: true, State: pb.NodeState(pb.NodeState_value["NODE_STATE_"+to])})
		b.noted(to, op.GetOperationId(), err)
	default:
		if storetest.State(b.T, b.Store, id) == "retired" { // and comes back into service
			op, err := b.Nodes.TransitionNode(b.ctx, &pb.TransitionNodeRequest{NodeId: id, RequestId: b.request(),
				Comment: "drawn", State: node.Offline})
			b.noted("OFFLINE", op.GetOperationId(), err)
		}
	}
}

// bulk begins a rollout over a rack or the fleet, or goes on with one.
func (b *budgetWorld) bulk() {
	if len(b.rollouts) < 4 {
		spec := &pb.RolloutSpec{
			Filter:      b.oneOf("machine_id=*", fmt.Sprintf("%s=r%d", b.oneOf("rack", "labels.rack"), b.rand.IntN(b.racks))),
			Type:        b.oneOf("REBOOT", "ENTER_MAINTENANCE", "EXIT_MAINTENANCE", "REPAVE"),
			MaxInFlight: int32(len(b.machines)),
		}
		p, err := b.Rollouts.PreviewRollout(b.ctx, &pb.PreviewRolloutRequest{Spec: spec})
		if err != nil {
			return
		}
		ro, err := b.Rollouts.CreateRollout(b.ctx, &pb.CreateRolloutRequest{RequestId: b.request(), Spec: spec,
			Digest: p.GetDigest()})
		if err == nil {
			b.begun["rollout"]++
			b.rollouts = append(b.rollouts, ro.GetRolloutId())
		}
		return
	}
	i := b.rand.IntN(len(b.rollouts))
	move, err := b.Store.Rollouts.AdvanceRollout(b.T.Context(), b.rollouts[i], time.Now().Add(time.Hour))
	if err != nil {
		b.T.Fatal(err)
	}
	if move == nil || len(move.Starting) == 0 {
		ro, err := b.Store.Rollouts.GetRollout(b.T.Context(), b.rollouts[i])
		if err == nil && (ro.GetFinishedAt() != nil || b.chance(10)) {
			_, _ = b.Rollouts.CancelRollout(b.ctx, &pb.CancelRolloutRequest{RolloutId: b.rollouts[i]}) // or it has ended
			b.rollouts = slices.Delete(b.rollouts, i, i+1)
		}
		return
	}
	for _, m := range move.Starting {
		op, err := b.Store.Rollouts.StartRolloutMachine(b.T.Context(), b.rollouts[i], m, storetest.Now())
		b.noted("of a rollout", op.GetOperationId(), err)
	}
}

// relabels writes fields of a machine: an operator those that no budget uses, and an admin all, of machines that are in
// service or wait. A machine that has been admitted already is not moved: no budget would hold afterwards.
func (b *budgetWorld) relabels(id string) {
	m := &pb.Machine{MachineId: id, Labels: map[string]string{"rack": fmt.Sprint("r", b.rand.IntN(b.racks))},
		Spec: &pb.MachineSpec{Site: fmt.Sprint("s", b.rand.IntN(3)), Group: b.oneOf("a", "b"),
			Rack: fmt.Sprint("r", b.rand.IntN(b.racks))}}
	write := func(ctx context.Context, paths ...string) error {
		_, err := b.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: m,
			UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	stored := storetest.Machine(b.T, b.Store, id)
	if err := write(b.ctx, "spec.group"); err != nil && stored.GetDeletedAt() == nil {
		b.T.Errorf("an operator does not regroup %s: %v", id, err)
	}
	names := func(field, label string) []string {
		out := []string{cmp.Or(field, label), cmp.Or(label, field)}
		slices.Sort(out)
		return slices.Compact(out)
	}
	field, label := stored.GetSpec().GetRack(), stored.GetLabels()["rack"]
	for path, moves := range map[string]bool{
		"labels.rack": !slices.Equal(names(field, label), names(field, m.GetLabels()["rack"])),
		"spec.rack":   !slices.Equal(names(field, label), names(m.GetSpec().GetRack(), label)),
		"spec.site":   m.GetSpec().GetSite() != stored.GetSpec().GetSite(),
	} {
		if err := write(b.ctx, path); moves && reasonOf(err) != "FIELD_IN_USE" && stored.GetDeletedAt() == nil {
			b.T.Errorf("an operator writes %s of %s: %v", path, id, err)
		}
	}
	if _, busy := b.state()[id]; !busy && b.chance(40) && storetest.Count(b.T, b.Store,
		"SELECT count(*) FROM budget_slots WHERE machine_id = $1 AND released_at IS NULL", id) == 0 {
		if err := write(b.T.Context(), b.oneOf("labels.rack", "spec.rack"), "spec.site"); err == nil {
			b.begun["moved by an admin"]++
		}
	}
}

// repairs is a person who has looked at a machine.
func (b *budgetWorld) repairs(id string) {
	ctx := b.T.Context()
	_, _ = b.Admin.ClearIntervention(ctx, &pb.ClearInterventionRequest{MachineId: id}) // it may need nobody
	if b.chance(50) {
		b.run(b.away(id), "EXIT_MAINTENANCE", "")
	}
	if storetest.Machine(b.T, b.Store, id).GetStatus().GetEffectiveState() == pb.MachineStatus_IDLE {
		_, _ = b.Budgets.ReleaseBudgetSlot(ctx, &pb.ReleaseBudgetSlotRequest{MachineId: id}) // it may hold none
	}
}

// work is a round of admissions, and a look at some operations, whose agents do what they are asked or fail.
func (b *budgetWorld) work() {
	if _, _, err := b.Store.Budgets.AdmitDestructive(b.T.Context(), storetest.Now()); err != nil {
		b.T.Fatal(err)
	}
	b.check()
	for range 3 {
		if len(b.open) == 0 {
			return
		}
		i := b.rand.IntN(len(b.open))
		id := b.open[i]
		op, err := b.Store.OperationQueries.GetOperation(b.T.Context(), id)
		if err != nil {
			b.T.Fatal(err)
		}
		if op.GetFinishedAt() != nil {
			b.open = slices.Delete(b.open, i, i+1)
			continue
		}
		storetest.Decide(b.T, b.Store, id, operation.Evaluate{})
		b.check()
		if a := b.agentOf[op.GetMachineId()]; b.chance(50) {
			if c := b.sentTo(a, id); c != nil {
				b.answer(a, id, c, b.chance(15))
			}
		}
	}
}

// sentTo returns the command of an operation that the machine's agent has been sent, nil if there is none.
func (b *budgetWorld) sentTo(a *simAgent, id string) *sent {
	out, err := b.Store.Sessions.Unsettled(b.T.Context(), a.ID)
	if err != nil {
		b.T.Fatal(err)
	}
	for _, c := range out {
		spec := &fleetv1.CommandSpec{}
		if err := proto.Unmarshal(c.Spec, spec); err != nil {
			b.T.Fatal(err)
		}
		if spec.GetOperationId() == id {
			return &sent{spec, c.Digest}
		}
	}
	return nil
}

// stand is a machine that is out of service, or loses data.
type stand struct {
	rack, label  string
	site         string
	out, written bool
}

// state returns the machines that are out of service and those that lose data. It reads neither slots nor the harms that
// the controller has stored: what each verb does is written down here once more. A machine that has left the inventory
// is in neither.
func (b *budgetWorld) state() map[string]stand {
	b.T.Helper()
	rows, err := b.Store.DB.Pool().Query(b.T.Context(), `SELECT * FROM (
		SELECT m.machine_id, coalesce(m.spec ->> 'rack', '') AS rack, coalesce(m.labels ->> 'rack', '') AS label, m.site,
			m.node_state NOT IN ('retired', 'removing') AND (m.phase <> 'READY' OR o.phase = 'RUNNING' AND (o.type = 'REBOOT'
				OR o.plan_id = 'leave')) AS out,
			coalesce(o.phase = 'RUNNING' AND (o.type IN ('REIMAGE', 'RMA') OR o.plan_id = 'erase' OR m.node_state = 'draining'
				AND o.type = 'RUN_PLAN' OR o.type = 'DECOMMISSION' AND EXISTS (SELECT 1 FROM operation_steps s
				WHERE s.operation_id = o.operation_id AND s.kind IN ('erase', 'repave', 'reset_devices'))), false) AS written
		FROM machines m LEFT JOIN operations o ON o.operation_id = m.current_operation_id WHERE m.deleted_at IS NULL) x
		WHERE out OR written`)
	if err != nil {
		b.T.Fatal(err)
	}
	all := map[string]stand{}
	var id string
	var s stand
	if _, err := pgx.ForEachRow(rows, []any{&id, &s.rack, &s.label, &s.site, &s.out, &s.written}, func() error {
		all[id] = s
		return nil
	}); err != nil {
		b.T.Fatal(err)
	}
	return all
}

// explain logs of each machine that is out of service its slots and its newest operations.
func (b *budgetWorld) explain() {
	rows, err := b.Store.DB.Pool().
		Query(b.T.Context(), `SELECT m.machine_id || ' ' || m.phase || ' ' || m.node_state || concat_ws(', ', ' at ' || m.site,
		'rack ' || (m.spec ->> 'rack'), 'label ' || (m.labels ->> 'rack')) || ': ' ||
		coalesce((SELECT string_agg(concat_ws(' ', h.harm, 'of', h.operation_id, 'at', h.site, h.rack, h.labels, h.taken_at),
			', ') FROM budget_slots h
			WHERE h.machine_id = m.machine_id AND h.released_at IS NULL), 'no slots') || '; ' ||
		(SELECT string_agg(concat_ws(' ', o.operation_id, o.type, o.plan_id, o.phase, o.interrupts), ', ' ORDER BY o.created_at DESC)
			FROM operations o WHERE o.target_id = m.machine_id)
		FROM machines m WHERE m.phase <> 'READY' OR m.current_operation_id IS NOT NULL`)
	if err != nil {
		b.T.Fatal(err)
	}
	var line string
	if _, err := pgx.ForEachRow(rows, []any{&line}, func() error { b.T.Log(line); return nil }); err != nil {
		b.T.Fatal(err)
	}
}

// check compares the fleet with its budgets.
func (b *budgetWorld) check() {
	b.T.Helper()
	now, racks, sites := counts{}, map[string]int{}, map[string]int{}
	for _, s := range b.state() {
		if s.out {
			now.out++
			racks[cmp.Or(s.rack, s.label)]++
			if s.label != "" && s.rack != "" && s.label != s.rack {
				racks[s.label]++
			}
		}
		if s.written {
			now.written++
			sites[s.site]++
		}
	}
	b.most = counts{max(b.most.out, now.out), max(b.most.written, now.written)}
	if now.out > b.limits.out || now.written > b.limits.written {
		b.explain()
		b.T.Fatalf(
			"seed %d: %d machines are out of service and %d lose data; the budgets are %+v",
			b.seed,
			now.out,
			now.written,
			b.limits,
		)
	}
	for rack, n := range racks {
		if n > b.limits.outOfRack {
			b.explain()
			b.T.Fatalf("seed %d: %d machines of rack %s are out of service", b.seed, n, rack)
		}
	}
	for site, n := range sites {
		if n > b.limits.writtenOfSite {
			b.explain()
			b.T.Fatalf("seed %d: %d machines of site %s lose data", b.seed, n, site)
		}
	}
}
