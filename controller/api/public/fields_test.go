package public_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// A refusal names what depends on the field as far as the caller may read that. Roles and tokens are for admins to
// read.
func TestWhatARefusedFieldNames(t *testing.T) {
	r := publictest.NewRig(t)
	operate := publictest.AsOperator(t.Context())
	for id, labels := range map[string]map[string]string{"m-1": {"rack": "1"}, "m-2": {"team": "web"}} {
		if _, err := r.Machines.RegisterMachine(t.Context(), &pb.RegisterMachineRequest{
			Machine: &pb.Machine{MachineId: id, Labels: labels, Spec: &pb.MachineSpec{Site: "a"}}}); err != nil {
			t.Fatal(err)
		}
	}
	relabel := func(ctx context.Context, id, key, value string) error {
		_, err := r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: id,
			Labels: map[string]string{key: value}, Spec: &pb.MachineSpec{}}})
		return err
	}
	if err := errors.Join(relabel(operate, "m-1", "rack", "2"), relabel(operate, "m-1", "rack", "1")); err != nil {
		t.Fatalf("labels that nothing uses: %v", err)
	}
	if _, err := r.Budgets.SetBudget(t.Context(), &pb.SetBudgetRequest{
		Budget: &pb.Budget{Name: "racks", Domain: "label:rack", AtOnce: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.CreateAPIToken(t.Context(), &pb.CreateAPITokenRequest{Name: "hidden-one", Scope: "admin",
		Selection: "labels.team=web"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ctx          context.Context
		id, key      string
		names, hides string
	}{
		"a budget, for who reads all":      {operate, "m-1", "rack", "budget racks", "hidden-one"},
		"a budget, for who reads one site": {publictest.Within(t.Context(), "site=a"), "m-1", "rack", "budget", "racks:"},
		"a token":                          {operate, "m-2", "team", "token", "hidden-one"},
	} {
		value := fmt.Sprint("v-", len(name)) // another one each time
		err := relabel(c.ctx, c.id, c.key, value)
		publictest.Wants(t, err, failure.KindDenied, "FIELD_IN_USE", "machine.labels."+c.key)
		f := failure.From(err)
		if text := fmt.Sprint(f.Message, f.Metadata); !strings.Contains(text, c.names) || strings.Contains(text, c.hides) {
			t.Errorf("%s: %s", name, text)
		}
		if c.names == "budget" && f.Metadata["used_by_name"] != "" {
			t.Errorf("%s: it names %s", name, f.Metadata["used_by_name"])
		}
		if err := relabel(t.Context(), c.id, c.key, value); err != nil {
			t.Errorf("%s: an admin: %v", name, err)
		}
	}
	// Another label of the same machine stays free.
	if err := relabel(t.Context(), "m-1", "rack", "same"); err != nil {
		t.Fatal(err)
	}
	if err := relabel(operate, "m-1", "note", "x"); err == nil {
		t.Error("labels without rack replace those with it, which leaves the budget's domain")
	}
	_, err := r.Machines.RegisterMachine(operate, &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-1",
		Labels: map[string]string{"rack": "same", "note": "x"}}})
	if err != nil {
		t.Errorf("a label that nothing uses, beside one in use: %v", err)
	}
}

// A caller with roles on some machines registers machines that are among them, with and without an id.
func TestRegisteringWithinASelection(t *testing.T) {
	r := publictest.NewRig(t)
	at := func(ctx context.Context, id, site string) (*pb.Machine, error) {
		return r.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{
			Machine: &pb.Machine{MachineId: id, Spec: &pb.MachineSpec{Site: site}}})
	}
	here := publictest.Within(t.Context(), "site=a")
	if _, err := at(t.Context(), "m-elsewhere", "b"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "m-here", "m-here"} {
		if m, err := at(here, id, "a"); err != nil || m.GetSpec().GetSite() != "a" {
			t.Errorf("at the own site: %v, %v", m, err)
		}
	}
	for id, site := range map[string]string{"": "b", "m-new": "b", "m-default": "", "m-elsewhere": "a"} {
		_, err := at(here, id, site)
		publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	}
	_, err := at(here, "m-here", "b")
	publictest.Wants(t, err, failure.KindDenied, "FIELD_IN_USE", "machine.spec.site")
	_, err = at(publictest.Within(t.Context(), "rack=1"), "m-racked", "a")
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	// A deleted machine is of its old place.
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-elsewhere"}); err != nil {
		t.Fatal(err)
	}
	_, err = at(here, "m-elsewhere", "a")
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	_, err = at(t.Context(), "m-elsewhere", "b")
	publictest.Wants(t, err, failure.KindPrecondition, "MACHINE_DELETED", "")
}

// The selections that decide about fields hold the same machines as those that lists and lookups ask the database for.
func TestSelectionsHoldWhatListsShow(t *testing.T) {
	r := publictest.NewRig(t)
	draw := rand.New(rand.NewPCG(1, 2))
	among := func(words ...string) string { return words[draw.IntN(len(words))] }
	var machines []*pb.Machine
	for i := range 60 {
		m := &pb.Machine{MachineId: fmt.Sprint("m-", i), Labels: map[string]string{}, Spec: &pb.MachineSpec{
			Site: among("", "a", "b"), Rack: among("", "r1", "r2", "a.b"), Group: among("", "g", "g2"),
			Region: among("", "eu", "us"), Provider: among("", "fake"), TargetClusterRef: among("", "k"),
			Location: among("", "x, y"), Serial: among("", `s"1`)}}
		for _, key := range []string{"team", "rack"} {
			if draw.IntN(3) > 0 {
				m.Labels[key] = among("", "web", "we", "w-x")
			}
		}
		made, err := r.Machines.RegisterMachine(t.Context(), &pb.RegisterMachineRequest{Machine: m})
		if err != nil {
			t.Fatal(err)
		}
		machines = append(machines, made)
	}
	held := 0
	for range 300 {
		var terms []string
		keys := []string{"site", "rack", "group", "region", "provider", "cluster", "location", "serial", "machine_id",
			"labels.team", "label.rack"}
		draw.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, key := range keys[:1+draw.IntN(2)] {
			value := among(`""`, "a", "r1", "r*", "g", "eu", "fake", "agent", "default", "k", `"x, y"`, `"s\"1"`, "web", "we*",
				`"w*"`, "a.b", "m-1", "m-1*", "*")
			terms = append(terms, among(key+"="+value, key+"!="+value, key+" in (a, "+value+")",
				key+" not in ("+value+", g2, web)"))
		}
		text := strings.Join(terms, ", ")
		got, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{Filter: text, PageSize: 1000})
		if err != nil {
			publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter") // a value that no label has
			continue
		}
		listed := map[string]bool{}
		for _, m := range got.GetMachines() {
			listed[m.GetMachineId()] = true
		}
		selection, err := membership.ParseSelection(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range machines {
			if in := machinestore.FieldsOf(m).In(selection); in != listed[m.GetMachineId()] {
				t.Fatalf("%s holds %v: %t, and a list shows it: %t", text, m, in, !in)
			}
		}
		held += len(listed)
	}
	if held == 0 {
		t.Error("no selection held a machine")
	}
}

// A role depends on no image, which an operator writes.
func TestNoRoleDependsOnAnImage(t *testing.T) {
	r := publictest.NewRig(t)
	_, err := r.Access.CreateRoleBinding(t.Context(), &pb.CreateRoleBindingRequest{
		Binding: &pb.RoleBinding{Role: string(access.Admin), Group: "g", Selection: "image=sha256:1"}})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "binding.selection")
}

// An approval of a discovered machine is a registration.
func TestAnApprovalWritesNoFieldInUse(t *testing.T) {
	r := publictest.NewRig(t)
	const mac = "52:54:00:12:34:56"
	if err := storetest.ExecSQL(t, r.Store, `INSERT INTO discovered_machines
		(site, mac, segment, first_seen_at, last_seen_at) VALUES ('default', $1::text::macaddr, 'boot', now(), now())`, mac); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Budgets.SetBudget(t.Context(), &pb.SetBudgetRequest{
		Budget: &pb.Budget{Name: "racks", Domain: "label:rack", AtOnce: 1}}); err != nil {
		t.Fatal(err)
	}
	approve := func(ctx context.Context, request string, labels map[string]string) error {
		_, err := r.Nodes.ApproveDiscovered(ctx, &pb.ApproveDiscoveredRequest{RequestId: request, MacAddress: mac,
			MachineId: "m-1", Labels: labels})
		return err
	}
	operate := publictest.AsOperator(t.Context())
	publictest.Wants(t, approve(operate, "1", map[string]string{"rack": "own"}), failure.KindDenied, "FIELD_IN_USE",
		"labels.rack")
	if err := approve(operate, "2", map[string]string{"free": "x"}); err != nil {
		t.Error(err)
	}
}
