package ingot

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// wholeSpec is a spec of which each field is set.
func wholeSpec(t *testing.T) *baremetalv1.MachineSpec {
	t.Helper()
	s := &baremetalv1.MachineSpec{}
	for _, f := range specFields {
		v := protoreflect.ValueOfString("of " + nameOf(f))
		switch {
		case f.Kind() != protoreflect.StringKind || f.IsMap():
			t.Fatalf("%s is neither a text nor a list of texts: say in spec.go how it is an attribute", nameOf(f))
		case f.IsList():
			s.ProtoReflect().Mutable(f).List().Append(v)
		default:
			s.ProtoReflect().Set(f, v)
		}
	}
	return s
}

func TestSpecsKeepEveryField(t *testing.T) {
	for _, s := range []*baremetalv1.MachineSpec{wholeSpec(t), {}} {
		if got := specMessage(specObject(s)); !proto.Equal(got, s) {
			t.Errorf("%v became %v", s, got)
		}
	}
	if len(specAttributes()) != len(specTypes()) {
		t.Error("attributes and types are not of the same fields")
	}
}

// with is an object of a spec in which some fields are others.
func with(s *baremetalv1.MachineSpec, values map[string]attr.Value) types.Object {
	all := specObject(s).Attributes()
	for name, v := range values {
		all[name] = v
	}
	return types.ObjectValueMust(specTypes(), all)
}

func list(items ...string) types.List {
	values := []attr.Value{}
	for _, s := range items {
		values = append(values, types.StringValue(s))
	}
	return types.ListValueMust(types.StringType, values)
}

// TestOnlyWhatIsNamedIsWritten: what a configuration does not name is not known at the plan of a new machine, and is
// that of the state later.
func TestOnlyWhatIsNamedIsWritten(t *testing.T) {
	is := &baremetalv1.MachineSpec{Rack: "r1", Site: "default", MacAddresses: []string{"52:54:00:aa:bb:cc"}}
	for _, c := range []struct {
		name   string
		values map[string]attr.Value
		want   []string
	}{
		{"the same", nil, nil},
		{"another rack", map[string]attr.Value{"rack": types.StringValue("r2")}, []string{"spec.rack"}},
		{"cleared", map[string]attr.Value{"rack": types.StringValue(""), "mac_addresses": list()},
			[]string{"spec.mac_addresses", "spec.rack"}},
		{"not known", map[string]attr.Value{"rack": types.StringUnknown(), "site": types.StringNull()}, nil},
		{"another spelling", map[string]attr.Value{"mac_addresses": list("5254.00AA.BBCC")}, nil},
		{"another address", map[string]attr.Value{"mac_addresses": list("52:54:00:aa:bb:cd")},
			[]string{"spec.mac_addresses"}},
	} {
		got := specChanges(with(is, c.values), specObject(is))
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSpellingIsKeptWhereItMeansTheSame(t *testing.T) {
	now := specObject(&baremetalv1.MachineSpec{Rack: "r2", MacAddresses: []string{"52:54:00:aa:bb:cc"}})
	was := with(&baremetalv1.MachineSpec{Rack: "r1"}, map[string]attr.Value{"mac_addresses": list("52-54-00-AA-BB-CC")})
	got := specMessage(spelled(now, was))
	if got.GetRack() != "r2" || got.GetMacAddresses()[0] != "52-54-00-AA-BB-CC" {
		t.Errorf("%v", got)
	}
}

func labels(pairs ...string) types.Map {
	values := map[string]attr.Value{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = types.StringValue(pairs[i+1])
	}
	return types.MapValueMust(types.StringType, values)
}

func TestLabelsOfOthersAreLeftAlone(t *testing.T) {
	m := &baremetalv1.Machine{
		Labels: map[string]string{"tier": "web", "owner": "others"},
		Spec:   &baremetalv1.MachineSpec{},
	}
	mine := machineModel{Labels: labels("tier", "db", "gone", "x"), Spec: specObject(m.GetSpec())}
	seen := mine.refreshed(m)
	if want := labels("tier", "web"); !seen.Labels.Equal(want) {
		t.Errorf("the state has %v", seen.Labels)
	}
	if got := labelChanges(mine.Labels, seen.Labels); !slices.Equal(got, []string{"labels.gone", "labels.tier"}) {
		t.Errorf("changes %v", got)
	}
	if got := labelChanges(types.MapNull(types.StringType), labels("a", "1")); !slices.Equal(got, []string{"labels.a"}) {
		t.Errorf("changes %v", got)
	}
	imported := machineModel{Labels: types.MapNull(types.StringType), Spec: types.ObjectNull(specTypes())}.refreshed(m)
	if !imported.Labels.IsNull() {
		t.Errorf("an import takes %v", imported.Labels)
	}
	if got := labelChanges(labels("tier", "db"), imported.Labels); !slices.Equal(got, []string{"labels.tier"}) {
		t.Errorf("after an import, changes %v", got)
	}
}

// seed is a seed of a configuration. Its version stands for the content, which no state holds.
func seed(userData string) types.Object {
	return types.ObjectValueMust(
		map[string]attr.Type{
			"user_data_wo":         types.StringType,
			"user_data_wo_version": types.Int64Type,
			"network_config_wo":    types.StringType,
			"ssh_authorized_keys":  types.ListType{ElemType: types.StringType},
		},
		map[string]attr.Value{"user_data_wo": types.StringValue(userData),
			"user_data_wo_version": types.Int64Value(int64(len(userData))), "network_config_wo": types.StringNull(),
			"ssh_authorized_keys": list("ssh-ed25519 AAAA")},
	)
}

// TestTheContentOfASeedIsTheConfigurationsAlone: a plan has none of it, and the request has all of it.
func TestTheContentOfASeedIsTheConfigurationsAlone(t *testing.T) {
	config := installation(func(m *installationModel) { m.Seed = seed("#cloud-config") })
	plan := installation(func(m *installationModel) {
		values := maps.Clone(config.Seed.Attributes())
		values["user_data_wo"] = types.StringNull()
		m.Seed = types.ObjectValueMust(config.Seed.AttributeTypes(t.Context()), values)
	})
	if got := plan.request().GetSeed().GetUserData(); got != "" {
		t.Errorf("a plan has %q", got)
	}
	if got := plan.seeded(config).request().GetSeed().GetUserData(); got != "#cloud-config" {
		t.Errorf("the request has %q", got)
	}
	if v := judge(plan, &plan); v.writes || v.refusal != "" {
		t.Errorf("the same plan: %+v", v)
	}
	for _, name := range writeOnly {
		if a := seedAttribute().Attributes[name]; !a.IsWriteOnly() {
			t.Errorf("%s lands in states", name)
		}
	}
}

func installation(change func(*installationModel)) installationModel {
	m := installationModel{
		MachineID: types.StringValue("m-1"), Image: types.StringValue("debian-12"), Generation: types.Int64Value(3),
		Timeout: types.StringValue("2h"),
	}
	if change != nil {
		change(&m)
	}
	return m
}

// TestOnlyAHigherGenerationWrites: nothing but a new resource and a higher generation writes a disk, and what else
// would need that is refused at the plan.
func TestOnlyAHigherGenerationWrites(t *testing.T) {
	is := installation(func(m *installationModel) { m.Seed = seed("#!") })
	same := func(change func(*installationModel)) installationModel {
		return installation(func(m *installationModel) {
			m.Seed = seed("#!")
			change(m)
		})
	}
	for _, c := range []struct {
		name    string
		plan    installationModel
		is      *installationModel
		writes  bool
		refused string
	}{
		{"new", installation(nil), nil, true, ""},
		{"the same", same(func(*installationModel) {}), &is, false, ""},
		{"higher", same(func(m *installationModel) { m.Generation = types.Int64Value(4) }), &is, true, ""},
		{"higher, another image", same(func(m *installationModel) {
			m.Generation, m.Image = types.Int64Value(9), types.StringValue("debian-13")
		}), &is, true, ""},
		{"lower", same(func(m *installationModel) { m.Generation = types.Int64Value(2) }), &is, false, "generation"},
		{"none", same(func(m *installationModel) { m.Generation = types.Int64Value(0) }), nil, false, "generation"},
		{"not known", same(func(m *installationModel) { m.Generation = types.Int64Unknown() }), &is, false, "generation"},
		{"another image", same(func(m *installationModel) { m.Image = types.StringValue("debian-13") }), &is, false, "image"},
		{"an image that is not known", same(func(m *installationModel) { m.Image = types.StringUnknown() }), &is, false,
			"image"},
		{"another path", same(func(m *installationModel) { m.Path = types.StringValue("bmc") }), &is, false, "path"},
		{"without agent", same(func(m *installationModel) { m.Agentless = types.BoolValue(true) }), &is, false, "agentless"},
		{"another seed", same(func(m *installationModel) { m.Seed = seed("#!/bin/sh") }), &is, false,
			"seed"},
		{"no seed", installation(nil), &is, false, "seed"},
		{"how long to wait", same(func(m *installationModel) { m.Timeout = types.StringValue("3h") }), &is, false, ""},
		{"no time at all", same(func(m *installationModel) { m.Timeout = types.StringValue("soon") }), &is, false, "timeout"},
	} {
		v := judge(c.plan, c.is)
		if v.writes != c.writes || v.attribute != c.refused || (v.attribute == "") != (v.refusal == "") {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// TestRequestIDsFollowFromTheGeneration: whatever else changes, one generation of one machine is one request.
func TestRequestIDsFollowFromTheGeneration(t *testing.T) {
	id := installation(nil).request().GetRequestId()
	other := installation(func(m *installationModel) {
		m.Image, m.Path, m.Timeout = types.StringValue("x"), types.StringValue("bmc"), types.StringValue("1h")
		m.TakeOutOfService, m.OperationID = types.BoolValue(true), types.StringValue("op-1")
	})
	if got := other.request().GetRequestId(); got != id || id == "" {
		t.Errorf("%q and %q", id, got)
	}
	if s := installation(
		func(m *installationModel) { m.Seed = seed("#!") },
	).request().
		GetSeed(); s.GetUserData() != "#!" ||
		len(s.GetSshAuthorizedKeys()) != 1 {
		t.Errorf("the seed is %v", s)
	}
	next := installation(func(m *installationModel) { m.Generation = types.Int64Value(4) })
	if next.request().GetRequestId() == id {
		t.Error("two generations are one request")
	}
}

// TestErrorsPageIsThatOfTheProduct: the provider's copy of docs/reference/errors.md is up to date.
func TestErrorsPageIsThatOfTheProduct(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != errorsPage {
		t.Error("errors.txt is not docs/reference/errors.md; run: make docs")
	}
	for name := range baremetalv1.Reason_value {
		if nextSteps[name] == "" && name != "REASON_UNSPECIFIED" {
			t.Errorf("%s has no next step", name)
		}
	}
}

func TestErrorsNameReasonFieldsAndNextStep(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "the machine is in phase READY").WithDetails(
		&errdetails.ErrorInfo{Domain: "ingot.dev", Reason: "WRONG_PHASE"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "machine_id", Description: "not in maintenance"}}})
	if err != nil {
		t.Fatal(err)
	}
	why := &baremetalv1.ExplainMachineResponse{MachineId: "m-1", Summary: "in service",
		Actions: []*baremetalv1.OperatorAction{{Command: "ingot enter-maintenance m-1", Consequence: "leaves service"}}}
	if got := summary("Install m-1", st.Err()); got != "Install m-1: WRONG_PHASE" {
		t.Errorf("summary %q", got)
	}
	text := detail(st.Err(), why, "", "a hint")
	for _, want := range []string{"the machine is in phase READY", "machine_id: not in maintenance",
		"Next step: " + nextSteps["WRONG_PHASE"], "a hint", "m-1: in service",
		"ingot enter-maintenance m-1 (leaves service)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	failed := &client.OperationError{Operation: &baremetalv1.Operation{OperationId: "op-1", MachineId: "m-1",
		Phase: baremetalv1.Operation_FAILED, Error: &baremetalv1.ErrorStatus{Code: "AGENT_UNAVAILABLE", Message: "no agent"}}}
	if got := summary("Install m-1", failed); got != "Install m-1: AGENT_UNAVAILABLE" {
		t.Errorf("summary %q", got)
	}
	if text := detail(failed, nil, installation(nil).hint(failed)); !strings.Contains(text, "generation = 4") ||
		!strings.Contains(text, nextSteps["AGENT_UNAVAILABLE"]) || !strings.Contains(text, "op-1") {
		t.Errorf("detail %q", text)
	}
}

// TestConnection: the configuration counts before the environment, and one token is taken.
func TestConnection(t *testing.T) {
	env := map[string]string{"INGOT_SERVER": "env:1", "INGOT_CA_FILE": "env.pem", "INGOT_TOKEN_FILE": "env-token"}
	get := func(name string) string { return env[name] }
	if got := connection(providerModel{}, get); got != (client.Config{Server: "env:1", CAFile: "env.pem",
		TokenFile: "env-token"}) {
		t.Errorf("%+v", got)
	}
	got := connection(providerModel{Endpoint: types.StringValue("a:1"), Token: types.StringValue("t")}, get)
	if got != (client.Config{Server: "a:1", CAFile: "env.pem", Token: "t"}) {
		t.Errorf("%+v", got)
	}
}
