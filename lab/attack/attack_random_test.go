package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

func randomAttempts() []Attempt {
	return []Attempt{
		{Party: Operator, Attempt: "widen one's own rights by calls drawn at random, with every token that can be made",
			Rule: 12, Run: drawRights},
	}
}

// drawn is one identity, which is no admin of all machines, with the tokens that it has made.
type drawn struct {
	rig     *Rig
	rand    *rand.Rand
	clients []*harness.Client
	// admin is the label of the machines that it is an admin of; empty for none.
	admin    string
	rollouts []string
	turn     int
	accepted int
}

func (d *drawn) among(words ...string) string { return words[d.rand.IntN(len(words))] }

func (d *drawn) request() string { d.turn++; return fmt.Sprint("drawn-", d.turn) }

// drawRights has machines of two teams and sites, one of which no role of the identity is for. It has a budget of
// racks, a group that demands proof, and a policy that demands a second person. Identities of several roles call what
// could widen their rights, in any order. Whatever is accepted, their rights, budgets, levels and signatures are those
// of before.
func drawRights(ctx context.Context, r *Rig) (Outcome, error) {
	if err := plantRights(ctx, r); err != nil {
		return Outcome{}, err
	}
	calls, taken := 0, 0
	identities := []struct{ scope, selection, admin string }{
		{"operate", "", ""}, {"operate", "site=x", ""}, {"admin", "labels.team=a", "a"}, {"read", "", ""},
	}
	var tokens []*harness.Client
	for seed, who := range identities { // the selection of each is in use from now on
		self, _, err := token(ctx, r.C.Client, fmt.Sprint("identity-", seed), who.scope, who.selection)
		if err != nil {
			return Outcome{}, err
		}
		tokens = append(tokens, self)
	}
	for seed, who := range identities {
		d := &drawn{rig: r, rand: rand.New(rand.NewPCG(uint64(seed), 3)), clients: tokens[seed : seed+1 : seed+1],
			admin: who.admin}
		before, err := d.rights(ctx)
		if err != nil {
			return Outcome{}, err
		}
		for range r.Many(120, 1500) {
			d.call(ctx)
			calls++
		}
		taken += d.accepted
		after, err := d.rights(ctx)
		if err != nil {
			return Outcome{}, err
		}
		for what, was := range before {
			if is := after[what]; is != was {
				return breached("identity %d (%s %q): %s was %s and is %s", seed, who.scope, who.selection, what, was, is), nil
			}
		}
		if out, err := d.signatures(ctx); err != nil || out.Breach {
			return out, err
		}
	}
	if taken < calls/20 {
		return Outcome{}, fmt.Errorf("%d of %d calls were taken: the calls are wrong", taken, calls)
	}
	return held("%d calls, %d taken, and nobody has more than before", calls, taken), nil
}

func plantRights(ctx context.Context, r *Rig) error {
	for i := range 6 {
		m := &baremetalv1.Machine{MachineId: fmt.Sprint("d-", i), Labels: map[string]string{"team": []string{"a", "b"}[i%2],
			"rack": fmt.Sprint("r", i%3)}, Spec: &baremetalv1.MachineSpec{Site: []string{"x", "y"}[i/3],
			Group: []string{"proven", "loose"}[i%2], MacAddresses: []string{fmt.Sprintf("52:54:00:00:01:0%d", i)}}}
		r.C.Register(m)
		op, err := r.C.Machines().EnterMaintenance(ctx,
			&baremetalv1.EnterMaintenanceRequest{MachineId: m.GetMachineId(), RequestId: "in"})
		if err != nil {
			return err
		}
		r.C.Wait(op.GetOperationId(), mostTime)
	}
	if _, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, budgetOf("label:rack", 1)); err != nil {
		return err
	}
	if _, err := r.C.Admin().RequireIdentity(ctx,
		&baremetalv1.RequireIdentityRequest{Group: "proven", Level: "tpm"}); err != nil {
		return err
	}
	_, err := rolloutsOf(r.C.Client).SetApprovalPolicy(ctx, &baremetalv1.SetApprovalPolicyRequest{
		Policy: &baremetalv1.ApprovalPolicy{Name: "all", Harm: baremetalv1.ApprovalPolicy_DESTROYS}})
	return err
}

// call makes one call that could widen the identity's rights. A refused call has no effect.
func (d *drawn) call(ctx context.Context) {
	c := d.clients[d.rand.IntN(len(d.clients))]
	var err error
	switch d.rand.IntN(8) {
	case 0, 1, 2:
		err = d.writes(ctx, c)
	case 3:
		scope, selection := d.among("read", "operate", "admin"), d.among("", "site=y", "labels.team=b", "machine_id=*")
		made, _, no := token(ctx, c, d.request(), scope, selection)
		if err = no; err == nil {
			d.clients = append(d.clients, made)
		}
	case 4:
		err = d.policies(ctx, c)
	case 5, 6:
		err = d.rollsOut(ctx, c)
	default:
		if len(d.rollouts) == 0 {
			return
		}
		id := d.rollouts[d.rand.IntN(len(d.rollouts))]
		ro, no := rolloutsOf(d.rig.C.Client).GetRollout(ctx, &baremetalv1.GetRolloutRequest{RolloutId: id})
		if err = no; err == nil {
			_, err = rolloutsOf(c).ApproveRollout(ctx, &baremetalv1.ApproveRolloutRequest{RolloutId: id, Digest: ro.GetDigest()})
		}
	}
	if err == nil {
		d.accepted++
	}
}

// writes changes a machine, or registers one.
func (d *drawn) writes(ctx context.Context, c *harness.Client) error {
	m := &baremetalv1.Machine{MachineId: fmt.Sprint("d-", d.rand.IntN(8)), Labels: map[string]string{
		"team": d.among("a", "b"), "rack": d.among("r0", "r1", "r9"), "free": d.among("1", "2")},
		Spec: &baremetalv1.MachineSpec{Site: d.among("x", "y"), Group: d.among("proven", "loose", "")}}
	switch d.rand.IntN(6) {
	case 0:
		m.MachineId = fmt.Sprint("d-new-", d.turn)
		_, err := c.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: m})
		return err
	case 1:
		_, err := c.Nodes().UpdateNode(ctx, &baremetalv1.UpdateNodeRequest{NodeId: m.GetMachineId(),
			Group: m.GetSpec().GetGroup(), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"group"}}})
		return err
	}
	path := d.among("labels", "labels.team", "labels.rack", "labels.free", "labels.free", "spec.site", "spec.group",
		"spec.mac_addresses", "spec")
	_, err := c.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: m,
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
	return err
}

// policies writes what decides about the identity itself.
func (d *drawn) policies(ctx context.Context, c *harness.Client) (err error) {
	budgets, access := baremetalv1.NewBudgetServiceClient(c.Conn()), baremetalv1.NewAccessServiceClient(c.Conn())
	switch d.rand.IntN(7) {
	case 0:
		_, err = budgets.SetBudget(ctx, budgetOf("label:rack", 9))
	case 1:
		_, err = budgets.DeleteBudget(ctx, &baremetalv1.DeleteBudgetRequest{Name: "one"})
	case 2:
		_, err = rolloutsOf(
			c,
		).SetApprovalPolicy(ctx, &baremetalv1.SetApprovalPolicyRequest{Policy: &baremetalv1.ApprovalPolicy{
			Name: "all", Harm: baremetalv1.ApprovalPolicy_DESTROYS, Machines: 1000}})
	case 3:
		_, err = rolloutsOf(c).DeleteApprovalPolicy(ctx, &baremetalv1.DeleteApprovalPolicyRequest{Name: "all"})
	case 4:
		_, err = access.CreateRoleBinding(ctx, &baremetalv1.CreateRoleBindingRequest{
			Binding: &baremetalv1.RoleBinding{Role: "admin", Group: "team"}})
	case 5:
		_, err = c.Admin().RequireIdentity(ctx, &baremetalv1.RequireIdentityRequest{Group: "proven", Level: "network"})
	default:
		_, err = c.Nodes().SetNodeGroup(ctx, &baremetalv1.SetNodeGroupRequest{Group: "proven"})
	}
	return err
}

// rollsOut creates a rollout that loses data.
func (d *drawn) rollsOut(ctx context.Context, c *harness.Client) error {
	spec := &baremetalv1.RolloutSpec{Filter: d.among("machine_id=*", "labels.team=a", "site=x"), Type: "REPAVE",
		Params: map[string]string{"image_ref": "ubuntu-2204"}}
	p, err := rolloutsOf(c).PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	ro, err := rolloutsOf(c).CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{RequestId: d.request(), Spec: spec,
		Digest: p.GetDigest()})
	if err == nil {
		d.rollouts = append(d.rollouts, ro.GetRolloutId())
	}
	return err
}

// rights returns what decides about the identity: budgets, policies, roles and levels, and of each machine that it is
// no admin of the fields by which those find it.
func (d *drawn) rights(ctx context.Context) (map[string]string, error) {
	out, c := map[string]string{}, d.rig.C
	budgets, err := baremetalv1.NewBudgetServiceClient(c.Conn()).ListBudgets(ctx, &baremetalv1.ListBudgetsRequest{})
	if err != nil {
		return nil, err
	}
	policies, err := rolloutsOf(c.Client).ListApprovalPolicies(ctx, &baremetalv1.ListApprovalPoliciesRequest{})
	if err != nil {
		return nil, err
	}
	roles, err := baremetalv1.NewAccessServiceClient(c.Conn()).
		ListRoleBindings(ctx, &baremetalv1.ListRoleBindingsRequest{})
	if err != nil {
		return nil, err
	}
	groups, err := c.Nodes().ListNodeGroups(ctx, &baremetalv1.ListNodeGroupsRequest{})
	if err != nil {
		return nil, err
	}
	out["budgets"], out["policies"] = protojson.Format(budgets), protojson.Format(policies)
	out["roles"] = protojson.Format(roles)
	for _, g := range groups.GetGroups() {
		if g.GetIdentityLevel() != "" {
			out["level of "+g.GetGroup()] = g.GetIdentityLevel()
		}
	}
	all, err := c.Machines().ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
	if err != nil {
		return nil, err
	}
	for _, m := range all.GetMachines() {
		if strings.HasPrefix(m.GetMachineId(), "d-") && !strings.HasPrefix(m.GetMachineId(), "d-new") &&
			(d.admin == "" || m.GetLabels()["team"] != d.admin) {
			out[m.GetMachineId()] = fmt.Sprintf("%s %s %s, proven %t", m.GetLabels()["team"], m.GetLabels()["rack"],
				m.GetSpec().GetSite(), m.GetSpec().GetGroup() == "proven")
		}
	}
	return out, nil
}

// signatures looks for a rollout of the identity that was approved, or that has begun.
func (d *drawn) signatures(ctx context.Context) (Outcome, error) {
	waits := []baremetalv1.Rollout_State{baremetalv1.Rollout_AWAITING_APPROVAL, baremetalv1.Rollout_CANCELED}
	for _, id := range d.rollouts {
		ro, err := rolloutsOf(d.rig.C.Client).GetRollout(ctx, &baremetalv1.GetRolloutRequest{RolloutId: id})
		if err != nil {
			return Outcome{}, err
		}
		if ro.GetApprovedBy() != "" || !slices.Contains(waits, ro.GetState()) {
			return breached("rollout %s is %s, approved by %q", id, ro.GetState(), ro.GetApprovedBy()), nil
		}
	}
	return Outcome{}, nil
}
