package attack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/lab/harness"
)

// fieldAttempts write fields of machines that rights, budgets and identity levels depend on.
func fieldAttempts() []Attempt {
	return []Attempt{
		{Party: Operator, Attempt: "escape a budget by a label", Rule: 12, Run: escapeBudget},
		{Party: Operator, Attempt: "escape a budget of racks by the rack of the spec", Rule: 12, Run: escapeByRack},
		{Party: Operator, Attempt: "enter an own admin selection by a label, and purge", Rule: 12, Run: enterSelection,
			Config: theProvider().config()},
		{Party: Operator, Attempt: "leave a group whose identity level is tpm", Rule: 12, Run: leaveLevel},
		{Party: Operator, Attempt: "change the MAC address of a machine with an identity", Rule: 12, Run: changeMAC},
		{Party: Operator, Attempt: "register a machine into a foreign selection", Rule: 12, Run: registerElsewhere},
		{Party: Operator, Attempt: "leave a budget by deleting and registering again", Rule: 12, Run: registerAgain},
	}
}

// changeFields tries to make a machine what it would be after a change, in every way that the API has. It returns nil
// where one of them did, and else all refusals.
func changeFields(ctx context.Context, c *harness.Client, id string, change func(*baremetalv1.Machine)) error {
	have, err := c.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if err != nil {
		return err
	}
	want := &baremetalv1.Machine{MachineId: id, Labels: have.GetLabels(), Spec: proto.CloneOf(have.GetSpec())}
	change(want)
	var refusals []error
	for _, mask := range [][]string{nil, {"labels", "spec"}, {"*"}, {"labels.team", "labels.rack", "spec.group",
		"spec.rack", "spec.site", "spec.mac_addresses"}} {
		_, err := c.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: want,
			UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}})
		refusals = append(refusals, err)
	}
	_, err = c.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: want})
	refusals = append(refusals, err)
	if want.GetSpec().GetGroup() != have.GetSpec().GetGroup() {
		_, err := baremetalv1.NewNodeServiceClient(c.Conn()).UpdateNode(ctx, &baremetalv1.UpdateNodeRequest{NodeId: id,
			Group: want.GetSpec().GetGroup(), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"group"}}})
		refusals = append(refusals, err)
	}
	for _, err := range refusals {
		if err == nil {
			return nil
		}
		if !harness.HasReason(err, "FIELD_IN_USE") && !harness.HasReason(err, access.ReasonScopeTooSmall) {
			return fmt.Errorf("refused for another reason: %w", err)
		}
	}
	return errors.Join(refusals...)
}

func budgetOf(domain string, atOnce int32) *baremetalv1.SetBudgetRequest {
	return &baremetalv1.SetBudgetRequest{Budget: &baremetalv1.Budget{Name: "one", Domain: domain, AtOnce: atOnce}}
}

// escapeBudget: of each rack one machine may be written at once. An operator sets another rack on each machine, and
// reimages all of them.
func escapeBudget(ctx context.Context, r *Rig) (Outcome, error) {
	budgets := baremetalv1.NewBudgetServiceClient(r.C.Conn())
	if _, err := budgets.SetBudget(ctx, budgetOf("label:rack", 1)); err != nil {
		return Outcome{}, err
	}
	operator := r.Client("operator", access.ScopeOperate)
	const machines = 3
	moved := 0
	for i := range machines {
		m := r.C.NewMachine(r.T, harness.MachineOptions{RepaveTime: time.Minute})
		m.WaitConnected()
		if _, err := r.C.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{
			Machine: &baremetalv1.Machine{MachineId: m.ID, Labels: map[string]string{"rack": "r1"}}}); err != nil {
			return Outcome{}, err
		}
		err := changeFields(ctx, operator, m.ID, func(w *baremetalv1.Machine) {
			w.Labels = map[string]string{"rack": fmt.Sprint("own-", i)}
		})
		if err == nil {
			moved++
		}
		enter, err := operator.Machines().EnterMaintenance(ctx,
			&baremetalv1.EnterMaintenanceRequest{MachineId: m.ID, RequestId: "1"})
		if err != nil {
			return Outcome{}, err
		}
		r.C.Wait(enter.GetOperationId(), time.Minute)
		if _, err := operator.Machines().ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: m.ID,
			RequestId: "2", ImageRef: "theirs"}); err != nil {
			return Outcome{}, err
		}
	}
	for range 50 {
		held, err := budgets.ListBudgetSlots(ctx, &baremetalv1.ListBudgetSlotsRequest{})
		if err != nil {
			return Outcome{}, err
		}
		if n := len(held.GetSlots()); n > 1 {
			return breached("%d of %d machines relabelled, %d written at once", moved, machines, n), nil
		}
		hold(ctx, 100*time.Millisecond)
	}
	if moved > 0 {
		return breached("%d of %d machines relabelled", moved, machines), nil
	}
	return held("no machine of %d relabelled; one is written at once", machines), nil
}

// escapeByRack: of each rack one machine may be written at once, and the field of the spec names the racks. An operator
// moves machines by the field, by a label over it, and by a label in its place. It also registers one in a new rack.
func escapeByRack(ctx context.Context, r *Rig) (Outcome, error) {
	if _, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, budgetOf("label:rack", 1)); err != nil {
		return Outcome{}, err
	}
	const machine = "m-racked"
	r.C.Register(&baremetalv1.Machine{MachineId: machine, Spec: &baremetalv1.MachineSpec{Rack: "r1"}})
	operator := r.Client("operator", access.ScopeOperate)
	for what, change := range map[string]func(*baremetalv1.Machine){
		"another field":          func(w *baremetalv1.Machine) { w.Spec.Rack = "own" },
		"no field":               func(w *baremetalv1.Machine) { w.Spec.Rack = "" },
		"a label beside it":      func(w *baremetalv1.Machine) { w.Labels = map[string]string{"rack": "own"} },
		"a label in its place":   func(w *baremetalv1.Machine) { w.Spec.Rack, w.Labels = "", map[string]string{"rack": "own"} },
		"a label, and the field": func(w *baremetalv1.Machine) { w.Spec.Rack, w.Labels = "own", map[string]string{"rack": "r1"} },
	} {
		err := changeFields(ctx, operator, machine, change) // an empty field without a mask changes nothing, and is taken
		now := r.C.Machine(machine)
		if err != nil && !harness.HasReason(err, "FIELD_IN_USE") {
			return Outcome{}, err
		}
		if now.GetSpec().GetRack() != "r1" || len(now.GetLabels()) > 0 {
			return breached("its rack is changed by %s: %q, labels %v", what, now.GetSpec().GetRack(), now.GetLabels()), nil
		}
	}
	_, err := operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: "m-new", Spec: &baremetalv1.MachineSpec{Rack: "own"}}})
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("it registers a machine in a rack of its own: %v", err), nil
	}
	return held("the rack stays, by whichever name"), nil
}

// enterSelection: Eve is an operator of one site, and an admin of the machines with a label.
func enterSelection(ctx context.Context, r *Rig) (Outcome, error) {
	p := theProvider()
	p.start()
	const machine = "m-at-her-site"
	r.C.Register(&baremetalv1.Machine{MachineId: machine, Spec: &baremetalv1.MachineSpec{Site: "here",
		MacAddresses: []string{"52:54:00:aa:00:09"}}})
	roles := baremetalv1.NewAccessServiceClient(r.C.Conn())
	for role, selection := range map[string]string{"operator": "site=here", "admin": "labels.team=eve"} {
		if _, err := roles.CreateRoleBinding(ctx, &baremetalv1.CreateRoleBindingRequest{
			Binding: &baremetalv1.RoleBinding{Role: role, Group: "team", Selection: selection}}); err != nil {
			return Outcome{}, err
		}
	}
	eve := r.C.WithToken(p.token())
	if err := until(ctx, func() error {
		_, err := eve.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machine})
		return err
	}); err != nil {
		return Outcome{}, err
	}
	label := func(w *baremetalv1.Machine) { w.Labels = map[string]string{"team": "eve"} }
	refused := changeFields(ctx, eve, machine, label)
	if _, err := eve.Machines().DeleteMachine(ctx,
		&baremetalv1.DeleteMachineRequest{MachineId: machine, Purge: true}); err == nil {
		return breached("she has labelled the machine, and purged it"), nil
	}
	if refused == nil {
		return breached("she has labelled the machine"), nil
	}
	// Nor by a new record of the same hardware.
	if _, err := eve.Machines().DeleteMachine(ctx, &baremetalv1.DeleteMachineRequest{MachineId: machine}); err != nil {
		return Outcome{}, err
	}
	_, err := eve.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: "m-again", Labels: map[string]string{"team": "eve"},
		Spec: &baremetalv1.MachineSpec{Site: "here", MacAddresses: []string{"52:54:00:aa:00:09"}}}})
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("she has deleted the machine and registered it with the label: %v", err), nil
	}
	return held("no label, no purge, and no new record with the label"), nil
}

// leaveLevel: the machines of a group need a TPM.
func leaveLevel(ctx context.Context, r *Rig) (Outcome, error) {
	const machine = "m-proven"
	r.C.Register(&baremetalv1.Machine{MachineId: machine, Spec: &baremetalv1.MachineSpec{Group: "proven"}})
	if _, err := r.C.Admin().RequireIdentity(ctx,
		&baremetalv1.RequireIdentityRequest{Group: "proven", Level: "tpm"}); err != nil {
		return Outcome{}, err
	}
	operator := r.Client("operator", access.ScopeOperate)
	for _, group := range []string{"", "loose"} {
		err := changeFields(ctx, operator, machine, func(w *baremetalv1.Machine) { w.Spec.Group = group })
		now := r.C.Machine(machine).GetSpec().GetGroup()
		if err == nil && now != "proven" {
			return breached("the machine is in group %q", now), nil
		}
	}
	return held("the machine stays in its group"), nil
}

// changeMAC: a machine has an agent with a certificate, another one credentials of its BMC.
func changeMAC(ctx context.Context, r *Rig) (Outcome, error) {
	if _, err := r.C.Admin().SetBMCCredentials(ctx, &baremetalv1.SetBMCCredentialsRequest{
		CredentialsRef: "rack", Username: "root", Password: "secret", AllowedEndpoints: []string{"127.0.0.0/8"},
	}); err != nil {
		return Outcome{}, err
	}
	enrolled := r.C.NewMachine(r.T, harness.MachineOptions{})
	enrolled.WaitConnected()
	bmc := r.C.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
		BmcEndpoint: "redfish://127.0.0.1:9", BmcCredentialsRef: "rack", MacAddresses: []string{"52:54:00:aa:00:07"},
	}}).GetMachineId()
	operator := r.Client("operator", access.ScopeOperate)
	for i, id := range []string{enrolled.ID, bmc} {
		err := changeFields(ctx, operator, id, func(w *baremetalv1.Machine) {
			w.Spec.MacAddresses = []string{fmt.Sprintf("52:54:00:bb:00:%02d", i)}
		})
		if !harness.HasReason(err, access.ReasonScopeTooSmall) {
			return breached("machine %d of 2 has the MAC address of another box: %v", i+1, err), nil
		}
	}
	return held("the MAC addresses stay"), nil
}

// registerElsewhere: a token may operate at one site. Its client registers machines at another, and with a label that a
// budget depends on.
func registerElsewhere(ctx context.Context, r *Rig) (Outcome, error) {
	if _, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, budgetOf("label:rack", 1)); err != nil {
		return Outcome{}, err
	}
	c, _, err := token(ctx, r.C.Client, "narrow", "operate", "site=here")
	if err != nil {
		return Outcome{}, err
	}
	register := func(m *baremetalv1.Machine) error {
		_, err := c.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: m})
		return err
	}
	here, there := &baremetalv1.MachineSpec{Site: "here"}, &baremetalv1.MachineSpec{Site: "there"}
	if err := register(&baremetalv1.Machine{Spec: there}); !harness.HasReason(err, "OUTSIDE_SELECTION") {
		return breached("it registers a machine at another site: %v", err), nil
	}
	if err := register(&baremetalv1.Machine{MachineId: "m-new"}); !harness.HasReason(err, "OUTSIDE_SELECTION") {
		return breached("it registers a machine at the default site: %v", err), nil
	}
	err = register(&baremetalv1.Machine{MachineId: "m-new", Spec: here, Labels: map[string]string{"rack": "own"}})
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("it registers a machine in a rack of its own: %v", err), nil
	}
	if err := register(&baremetalv1.Machine{MachineId: "m-new", Spec: here}); err != nil {
		return Outcome{}, fmt.Errorf("at its own site: %w", err)
	}
	return held("it registers machines at its own site alone, and without a rack"), nil
}

// registerAgain: a machine of a rack with a budget is deleted, or its MAC address removed, and its hardware registered
// without the label.
func registerAgain(ctx context.Context, r *Rig) (Outcome, error) {
	if _, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, budgetOf("label:rack", 1)); err != nil {
		return Outcome{}, err
	}
	macs := []string{"52:54:00:aa:00:08"}
	old := r.C.Register(&baremetalv1.Machine{Labels: map[string]string{"rack": "r1"},
		Spec: &baremetalv1.MachineSpec{MacAddresses: macs}})
	operator := r.Client("operator", access.ScopeOperate)
	if _, err := operator.Machines().DeleteMachine(ctx,
		&baremetalv1.DeleteMachineRequest{MachineId: old.GetMachineId()}); err != nil {
		return Outcome{}, err
	}
	_, err := operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
		Machine: &baremetalv1.Machine{MachineId: "m-again", Spec: &baremetalv1.MachineSpec{MacAddresses: macs}}})
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("the hardware is back outside of its budget: %v", err), nil
	}
	moved := []string{"52:54:00:aa:00:06"}
	kept := r.C.Register(&baremetalv1.Machine{Labels: map[string]string{"rack": "r1"},
		Spec: &baremetalv1.MachineSpec{MacAddresses: moved}})
	if _, err := operator.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{
		Machine:    &baremetalv1.Machine{MachineId: kept.GetMachineId()},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.mac_addresses"}}}); err != nil {
		return Outcome{}, err
	}
	_, err = operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
		Machine: &baremetalv1.Machine{MachineId: "m-moved", Spec: &baremetalv1.MachineSpec{MacAddresses: moved}}})
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("the hardware has a record outside of its budget: %v", err), nil
	}
	// Nor by adding the address later.
	if _, err := operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
		Machine: &baremetalv1.Machine{MachineId: "m-again"}}); err != nil {
		return Outcome{}, err
	}
	err = changeFields(ctx, operator, "m-again", func(w *baremetalv1.Machine) { w.Spec.MacAddresses = macs })
	if !harness.HasReason(err, "FIELD_IN_USE") {
		return breached("a machine outside of the budget has the address: %v", err), nil
	}
	return held("its MAC address needs an admin"), nil
}
