package validate_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// fields are the paths that err names.
func fields(err error) []string {
	var out []string
	if err != nil {
		for _, f := range failure.From(err).Fields {
			out = append(out, f.Path)
		}
	}
	return out
}

func TestMAC(t *testing.T) {
	for in, want := range map[string]string{
		"52:54:00:AA:bb:01": "52:54:00:aa:bb:01", "52-54-00-aa-bb-01": "52:54:00:aa:bb:01",
		"5254.00aa.bb01": "52:54:00:aa:bb:01",
		"525400aabb01":   "52:54:00:aa:bb:01",
		"":               "", "52:54:00:aa:bb": "", "02:00:5e:10:00:00:00:01": "", "00:00:00:00:00:00": "",
		"FF:FF:FF:FF:FF:FF": "", "gg:54:00:aa:bb:01": "",
	} {
		if got, ok := validate.MAC(in); ok != (want != "") || ok && got != want {
			t.Errorf("%q gives %q %v", in, got, ok)
		}
	}
}

func TestBMCEndpoints(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"": true, "10.0.0.1": true, "10.0.0.1:443": true, "redfish://bmc-1.example.com": true,
		"redfish+http://[::1]:8000": true,
		"ipmi://10.0.0.1:623":       true, "ipmi://": false, "https://10.0.0.1": false, "redfish://a:0": false,
		"redfish://u:p@h": false,
	} {
		_, err := validate.Machine("machine", &pb.Machine{Spec: &pb.MachineSpec{BmcEndpoint: in}})
		if (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	cases := map[string]bool{
		"": true, "10.0.0.1": true, "10.0.0.1:22": true, "bmc-1.example.com": true, "bmc-1.example.com:443": true,
		"::1":           true,
		"[2001:db8::1]": true, "[2001:db8::1]:623": true, "Host": true,
		"10.0.0.1:0": false, "10.0.0.1:65536": false, "10.0.0.1:": false, ":22": false, "300.0.0.1": false,
		"host name": false,
		"https://x": false, "user@x": false, "-x": false, "x..y": false, "fe80::1%eth0": false, "[x]:22": true, "a/b": false,
	}
	for in, want := range cases {
		_, err := validate.Machine("machine", &pb.Machine{Spec: &pb.MachineSpec{SshEndpoint: in}})
		if (err == nil) != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestMachineNamesEveryFault(t *testing.T) {
	_, err := validate.Machine("machine", &pb.Machine{
		MachineId: strings.Repeat("m", 300), Version: -1,
		Labels: map[string]string{"ok": "", "bad key": "x", "also/ok": "a.b", "bad": strings.Repeat("v", 64),
			"EXAMPLE.com/x": ""},
		Spec: &pb.MachineSpec{Provider: "A", Site: "s s", Rack: strings.Repeat("r", 256), ExternalId: "a\nb",
			DefaultImageRef: "a b",
			MacAddresses:    []string{"x"}, BmcEndpoint: "?"},
	})
	want := []string{
		"machine.machine_id", "machine.version", "machine.labels[EXAMPLE.com/x]", "machine.labels[bad]",
		"machine.labels[bad key]",
		"machine.spec.bmc_endpoint", "machine.spec.mac_addresses[0]", "machine.spec.provider", "machine.spec.site",
		"machine.spec.default_image_ref", "machine.spec.rack", "machine.spec.external_id",
	}
	if got := fields(err); !slices.Equal(got, want) {
		t.Errorf("named %v", got)
	}
}

func TestMachineDoesNotChangeTheRequest(t *testing.T) {
	in := &pb.Machine{MachineId: "m.1-a", Spec: &pb.MachineSpec{MacAddresses: []string{"525400AABB01"}},
		Status: &pb.MachineStatus{Schedulable: true}}
	out, err := validate.Machine("machine", in)
	if err != nil || out.GetSpec().GetMacAddresses()[0] != "52:54:00:aa:bb:01" || out.GetStatus() != nil {
		t.Errorf("out %v, %v", out, err)
	}
	if in.GetSpec().GetMacAddresses()[0] != "525400AABB01" {
		t.Errorf("the request is now %v", in)
	}
}

func TestRequestID(t *testing.T) {
	for id, want := range map[string]string{
		"a": "", strings.Repeat("x", 128): "", "deploy v2 (m-1), ~!": "",
		"": "REQUEST_ID_REQUIRED", strings.Repeat("x", 129): "INVALID_FIELD", "a\tb": "INVALID_FIELD", "ü": "INVALID_FIELD",
	} {
		err := validate.RequestID(id)
		if failure.ReasonOf(err) != want || err != nil && !slices.Equal(fields(err), []string{"request_id"}) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestNetReconfig(t *testing.T) {
	rule := func(r *pb.FirewallRule) *pb.NetReconfig {
		return &pb.NetReconfig{Firewall: &pb.FirewallPolicy{Allow: []*pb.FirewallRule{r}}}
	}
	cases := []struct {
		name string
		c    *pb.NetReconfig
		want string
	}{
		{"host name", &pb.NetReconfig{Hostname: "Web-1.example.com"}, ""},
		{"long host name", &pb.NetReconfig{Hostname: strings.Repeat("a", 63) + ".bc"}, "config.hostname"},
		{"long label", &pb.NetReconfig{Hostname: strings.Repeat("a", 64)}, "config.hostname"},
		{"dot at the end", &pb.NetReconfig{Hostname: "web."}, "config.hostname"},
		{"underscore", &pb.NetReconfig{Hostname: "web_1"}, "config.hostname"},
		{"accepted drift", &pb.NetReconfig{Hostname: "a", AcceptedDrift: "sha256:" + strings.Repeat("0f", 32)}, ""},
		{"no digest", &pb.NetReconfig{Hostname: "a", AcceptedDrift: "true"}, "config.accepted_drift"},
		{"half a digest", &pb.NetReconfig{Hostname: "a", AcceptedDrift: "sha256:" + strings.Repeat("0f", 16)},
			"config.accepted_drift"},
		{"accepted twice", &pb.NetReconfig{Hostname: "a", AcceptDrift: true, AcceptedDrift: "sha256:" +
			strings.Repeat("0f", 32)}, "config.accepted_drift"},
		{"empty policy", &pb.NetReconfig{Firewall: &pb.FirewallPolicy{}}, ""},
		{"confirm", &pb.NetReconfig{Hostname: "a", ConfirmTimeoutSeconds: 3601}, "config.confirm_timeout_seconds"},
		{"one port", rule(&pb.FirewallRule{Protocol: "tcp", PortFrom: 65535, SourceCidr: "2001:db8::/32"}), ""},
		{"no port", rule(&pb.FirewallRule{Protocol: "tcp"}), "config.firewall.allow[0].port_from"},
		{"icmp with a port", rule(&pb.FirewallRule{Protocol: "icmp", PortFrom: 1}), "config.firewall.allow[0].port_from"},
		{"port 65536", rule(&pb.FirewallRule{Protocol: "udp", PortFrom: 1, PortTo: 65536}),
			"config.firewall.allow[0].port_to"},
		{"address", rule(&pb.FirewallRule{Protocol: "tcp", PortFrom: 1, SourceCidr: "10.0.0.1"}),
			"config.firewall.allow[0].source_cidr"},
		{"host bits", rule(&pb.FirewallRule{Protocol: "tcp", PortFrom: 1, SourceCidr: "10.0.0.1/8"}),
			"config.firewall.allow[0].source_cidr"},
		{"nothing", nil, "config"},
	}
	for _, c := range cases {
		if got := strings.Join(fields(validate.NetReconfig("config", c.c)), " "); got != c.want {
			t.Errorf("%s: named %q", c.name, got)
		}
	}
}

func TestParams(t *testing.T) {
	path := func(k string) string { return "params[" + k + "]" }
	cases := []struct {
		kind   fleet.OperationType
		params map[string]string
		want   string
	}{
		{fleet.Reboot, map[string]string{"mode": "force", "timeout_seconds": "60", "image_ref": ""}, ""},
		{fleet.Reboot, map[string]string{"reboot": "true"}, "params[reboot]"},
		{fleet.Netboot, map[string]string{"mode": "PXE", "reboot": "false"}, ""},
		{fleet.Netboot, map[string]string{"reboot": "yes"}, "params[reboot]"},
		{fleet.Reimage, map[string]string{"image_ref": "a\tb"}, "params[image_ref]"},
		{fleet.RunPlan, map[string]string{"mode": "force"}, "params[mode]"},
		{fleet.RunPlan, map[string]string{"reboot_mode": "force", "netboot_mode": "HTTP"}, ""},
		{fleet.Reconfigure, map[string]string{"config": `{"hostname":"a_b"}`}, "params[config].hostname"},
		{fleet.Reconfigure, map[string]string{"config": `{"hostnam":"a"}`}, "params[config]"},
		{fleet.EnterMaintenance, map[string]string{"timeout_seconds": "1"}, "params[timeout_seconds]"},
	}
	for _, c := range cases {
		in, err := validate.Params(c.kind, c.params, path)
		if got := strings.Join(fields(err), " "); got != c.want {
			t.Errorf("%s %v: named %q", c.kind, c.params, got)
		}
		if c.kind == fleet.Reboot && err == nil && (in.RebootMode != "force" || in.TimeoutSeconds != 60) {
			t.Errorf("inputs %+v", in)
		}
	}
}

// TestEveryTextOfEveryCallIsChecked walks the requests of all methods of the public API.
func TestEveryTextOfEveryCallIsChecked(t *testing.T) {
	t.Parallel()
	texts := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				in := methods.Get(j).Input()
				for at, m := range testkit.EachText(in, "a\x00b") {
					texts++
					for name, check := range map[string]func(proto.Message) error{
						"Texts": validate.Texts, "ReportedTexts": validate.ReportedTexts} {
						err := check(m)
						field := at[:strings.IndexAny(at+".", ".[")]
						if failure.From(err).Kind != failure.KindInvalid || !strings.Contains(err.Error(), field) {
							t.Errorf("%s of %s.%s with NUL: %v", name, in.FullName(), at, err)
						}
					}
				}
				for at, m := range testkit.EachText(in, "a b\n\tc Zürich 東京") {
					if err := validate.Texts(m); err != nil {
						t.Errorf("%s.%s: %v", in.FullName(), at, err)
					}
				}
			}
		}
		return true
	})
	if texts < 500 {
		t.Errorf("%d texts were tried", texts)
	}
}

func TestOpaqueTextsKeepWhatTheyHold(t *testing.T) {
	t.Parallel()
	seed := &pb.SystemSeed{UserData: "#!/bin/sh\r\nprintf '\x1b[0m'\n"}
	if err := validate.Texts(seed); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"\x1b[31m", "\u202e", "\ufeff", "\u0085", "\r"} {
		if validate.Texts(&pb.GetMachineRequest{MachineId: "m" + text}) == nil {
			t.Errorf("%q is taken", text)
		}
		report := &pb.GetMachineRequest{MachineId: "m" + text}
		if err := validate.ReportedTexts(report); err != nil || strings.Contains(report.GetMachineId(), text) {
			t.Errorf("%q of a report became %q (%v)", text, report.GetMachineId(), err)
		}
	}
}
