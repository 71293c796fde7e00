package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// Each command must show the fields that it is there for.
func TestWhatReadsShow(t *testing.T) {
	for line, parts := range map[string][]string{
		"ops":                         {"OPERATION_ID", "op-1", "machine-1", "REIMAGE", "PENDING"},
		"ops get op-1":                {"Operation:", "op-1", "Created:", "2026-03-01T12:00:00Z"},
		"machine get machine-1":       {"Phase:", "MAINTENANCE", "CONDITION", "Reachable", "✓"},
		"machine inventory machine-1": {"Simulated:", "not real hardware", `"cpu": 8`},
		"machine tests machine-1": {"failed: 1 of 3 results", "312 MHash/s", "310 MHash/s", "SMART: the spare is used up",
			"warning nic eth0: 1000 Mbit/s is far below"},
		"machine health machine-1": {"one part is not well", "not known, ordered on by ci", "the BMC offers none",
			"power supply PSU2", "UnavailableOffline", "PSU2 lost its input", "23.5 Cel"},
		"machine health machine-2":            {"has no BMC", "Next: ingot machine update machine-2"},
		"machine tests machine-2":             {"was never tested", "Next: ingot test machine-2"},
		"machine inventory machine-1 -o json": {`"document": {`, `"cpu": 8`},
		"plan list":                           {"twice", "first → second"},
		"plan get twice":                      {"first", "reboot", "600s", "default", "second", "default", "none"},
		"run list":                            {"op-1", "REPAVE", "RUNNING", "netboot"},
		"run get op-1":                        {"Run:", "op-1", "netboot", "RUNNING", "2", "cmd-1"},
		"run logs op-1 --no-follow":           {"│ [boot] run log"},
		"agent list":                          {"a-1", "SITE", "lab", "✓", "at work"},
		"agent list -o wide":                  {"CAPABILITIES", "reboot"},
		"agent get a-1":                       {"Locked:", "at work", "f00d", "lost"},
		"token list --enrolment":              {"t-1", "HOST", "machine-1", "revoked"},
		"commands op-1":                       {"cmd-1", "boot", "DONE", "SUCCEEDED", "a-1", "2026-03-01T12:00:05Z"},
		"audit machine-1":                     {"2026-03-01T12:00:01Z", "op-team", "EnterMaintenance"},
		"audit -o json":                       {`"event_data": {`, `"comment": "swap"`},
		"timeline machine-1":                  {"SEQ", "2026-03-01T12:00:01Z", "audit", "op-team", "op-1", "REIMAGE"},
		"timeline machine-1 --at 1h": {"LastChange:", "(entry 2)", "MAINTENANCE", "NeedsIntervention:", "Operation:",
			"op-1, REIMAGE RUNNING", "Command:", "cmd-1 SENT"},
		"timeline machine-1 -o json": {`"hash"`, `"state"`},
		"audit verify machine-1": {"machine-1", "2", "abcd", "yes",
			"1 histories with 2 entries verified, 0 at fault"},
		"controllers":                  {"CONTROLLER_ID", "c-2", "ctl-2", "v9", "DRAINING", "1200", "✓", "✓", "holds for"},
		"controllers --all":            {"c-2", "c-1", "v8", "GONE", "ended"},
		"server info":                  {"v9", "c-1", "WEBHOOKS_NOT_WIRED"},
		"token issue machine-1":        {"Token t-1", "ingot1.bundle", "ingot-agent enroll --token-file -"},
		"token issue machine-1 --bare": {"ingot1.bundle"},
		"version":                      {"ingot test"},
		"__complete settle machine-1 ": {":4"},
		"__complete agent get ":        {"a-1\tSITE"},
		"__complete token revoke ":     {"tk-1\tci", "t-1\tmachine-1"},
		"token list": {"ops", "admin", "file", "in force", "tk-1", "ci", "operate", "database",
			"op-team"},
		"token create ci --scope operate": {"Token tk-1 of ci, scope operate", "ingotb_s3cret"},
		"token create ci --bare":          {"ingotb_s3cret"},
		"bmc credentials list":            {"rack-42", "10.0.0.0/24", "adopted, plain HTTP, unverified TLS"},
		"bmc certificates --changed":      {"berlin", "10.0.0.7", "machine-1", "aaaa", "bbbb"},
		"audit --export -":                {`"audit_id":"7"`},
		"__complete plan get ":            {"twice\tReboot twice"},
		"__complete flag machine-1 ":      {"RMA", "Retired"},
	} {
		args := strings.Split(line, " ")
		if got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, args...); got.code != 0 || !inOrder(got.out, parts...) {
			t.Errorf("%s: want %q in:\n%s%s(exit code %d)", line, parts, got.out, got.err, got.code)
		}
	}
}

// TestDoctorNamesWhatIsWrong: each finding has its remedy, and a fault the exit code 5.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "doctor")
	if got.code != 5 || !inOrder(got.out, "ok    controller", "sites", "credentials rack-42",
		"an upgrade found them", "without TLS", "whatever certificate", "2 machines that name them: m-8, m-9",
		"10.0.0.7 shows another certificate", "ingot bmc trust machine-1 --sha256 bbbb") {
		t.Errorf("exit code %d:\n%s%s", got.code, got.out, got.err)
	}
	got = reimaging(pb.Operation_SUCCEEDED, nil).run(t, "doctor", "-o", "json")
	var doc struct{ Checks []map[string]string }
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil || got.code != 5 || len(doc.Checks) < 8 {
		t.Errorf("exit code %d, %v:\n%s", got.code, err, got.out)
	}
	for _, c := range doc.Checks {
		if (c["level"] == "ok") != (c["remedy"] == "") {
			t.Errorf("remedy of %v", c)
		}
	}
}

// TestDoctorNamesAgentsThatAreAway: a host's as a warning, a site's as a fault, and none whose certificate has ended,
// since it may be gone for good.
func TestDoctorNamesAgentsThatAreAway(t *testing.T) {
	away := func(id, machine string, ends int, role pb.AgentRole) *pb.Agent {
		return &pb.Agent{AgentId: id, MachineId: machine, Site: "berlin", Role: role, LastHeartbeatAt: at(0),
			Certs: []*pb.AgentCert{{NotBefore: at(-90 * 86400), NotAfter: at(ends)}}}
	}
	const later = 100 * 365 * 86400
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.agents = []*pb.Agent{
		away("a-7", "m-7", later, pb.AgentRole_AGENT_ROLE_HOST),
		away("a-8", "m-gone", -86400, pb.AgentRole_AGENT_ROLE_HOST),
		away("a-9", "", later, pb.AgentRole_AGENT_ROLE_SITE),
	}
	got := f.run(t, "doctor")
	if got.code != 5 || !inOrder(got.out, "fail", "the agent of site berlin is away since", "warn",
		"1 machines' agents are away: m-7", "ingot agent list --filter connected=false; ingot why m-7") {
		t.Errorf("exit code %d:\n%s%s", got.code, got.out, got.err)
	}
	if strings.Contains(got.out, "m-gone") {
		t.Errorf("it names a machine whose certificate has ended:\n%s", got.out)
	}
}

// Each command must send what its flags say and nothing else.
func TestWhatWritesSend(t *testing.T) {
	current := reimaging(pb.Operation_SUCCEEDED, nil).machines[0]
	updated := proto.CloneOf(current)
	updated.Spec = &pb.MachineSpec{Rack: "r2", MacAddresses: []string{"52:54:00:00:00:01"}}
	updated.Labels = map[string]string{"env": "prod"}
	for line, want := range map[string]proto.Message{
		"flag machine-1 rma":           &pb.SetMachineFlagRequest{MachineId: "machine-1", Flag: "RMA", Value: true},
		"flag machine-1 Retired --off": &pb.SetMachineFlagRequest{MachineId: "machine-1", Flag: "Retired"},
		"token revoke tk-1":            &pb.RevokeAPITokenRequest{TokenId: "tk-1"},
		"token revoke t-1":             &pb.RevokeBootstrapTokenRequest{TokenId: "t-1"},
		"bmc credentials allow rack-1 --allow 10.0.0.0/24,bmc-7 --allow-plain-http=false": &pb.SetBMCCredentialsRequest{
			CredentialsRef: "rack-1", AllowedEndpoints: []string{"10.0.0.0/24", "bmc-7"}, AllowPlainHttp: new(bool)},
		"bmc trust machine-1 --sha256 AA:BB --comment checked": &pb.TrustBMCCertificateRequest{
			MachineId: "machine-1", Sha256: "aabb", Comment: "checked"},
		"bmc unpark machine-1 --comment ldap": &pb.UnparkBMCRequest{MachineId: "machine-1", Comment: "ldap"},
		"audit machine-1 --actor ci --since 2026-03-01T00:00:00Z --limit 7": &pb.ListAuditLogRequest{
			TargetId: "machine-1", Actor: "ci", Since: timestamppb.New(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)),
			PageSize: 7},
		"agent revoke a-1 --reason old":                &pb.RevokeAgentRequest{AgentId: "a-1", Reason: "old"},
		"machine identify machine-1":                   &pb.SetIdentifyLightRequest{MachineId: "machine-1", Lit: true},
		"machine identify machine-1 --off":             &pb.SetIdentifyLightRequest{MachineId: "machine-1"},
		"machine forget-tpm machine-1 --comment board": &pb.ForgetTPMRequest{MachineId: "machine-1", Comment: "board"},
		"identity require tpm --site lab":              &pb.RequireIdentityRequest{Site: "lab", Level: "tpm"},
		"identity require network --group g":           &pb.RequireIdentityRequest{Group: "g", Level: "network"},
		"token issue --role site --site lab --lifetime 1h": &pb.IssueBootstrapTokenRequest{
			Role: pb.AgentRole_AGENT_ROLE_SITE, Site: "lab", Lifetime: durationpb.New(time.Hour)},
		"machine update machine-1 --rack r2 --mac-addresses 52:54:00:00:00:01 --label env=prod --label gone-": &pb.UpdateMachineRequest{Machine: updated, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels", "spec"}}},
		"run start machine-1 --type REPAVE --param image_ref=u --request-id r --no-wait": &pb.StartRunRequest{
			RequestId: "r", MachineId: "machine-1", Type: "REPAVE", Params: map[string]string{"image_ref": "u"}},
		"reconfigure machine-1 --hostname web --accept-drift " +
			"sha256:0000000000000000000000000000000000000000000000000000000000000abc --request-id r --no-wait": &pb.ReconfigureMachineRequest{
			MachineId: "machine-1", RequestId: "r", Config: &pb.NetReconfig{
				Hostname: "web", AcceptedDrift: "sha256:0000000000000000000000000000000000000000000000000000000000000abc",
			},
		},
		"reconfigure machine-1 --hostname web --default-input drop --allow tcp:22 --smtp-egress --confirm-timeout 90s " +
			"--request-id r --no-wait --step-timeout 5m": &pb.ReconfigureMachineRequest{
			MachineId: "machine-1", RequestId: "r", TimeoutSeconds: 300, Config: &pb.NetReconfig{
				Hostname: "web", ConfirmTimeoutSeconds: 90, Firewall: &pb.FirewallPolicy{
					DefaultInput: "drop", SmtpEgressAllowed: true, Allow: []*pb.FirewallRule{{Protocol: "tcp", PortFrom: 22}}}}},
	} {
		f := reimaging(pb.Operation_SUCCEEDED, nil)
		got := f.run(t, strings.Fields(line)...)
		if got.code != 0 || len(f.sent) != 1 || !proto.Equal(f.sent[0], want) {
			t.Errorf("%s: sent %v, want %v (%+v)", line, f.sent, want, got)
		}
	}
}

func TestFilesOfMessages(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	got := f.run(t, "plan", "create", "-f", file("display_name: x\nsteps:\n  - {name: a, reboot: {mode: force}}\n"), "-o",
		"name")
	if got.code != 0 || len(f.sent) != 1 {
		t.Fatalf("%+v", got)
	}
	plan := f.sent[0].(*pb.CreatePlanRequest).GetPlan()
	if plan.GetSteps()[0].GetReboot().GetMode() != "force" || plan.GetPlanId()+"\n" != got.out || plan.GetPlanId() == "" {
		t.Errorf("sent %v, printed %q", plan, got.out)
	}
	if got := f.run(t, "plan", "create", "-f", file("steps: [{name: a, dance: {}}]")); got.code != 2 ||
		!strings.Contains(got.err, "dance") {
		t.Errorf("unknown step kind: %+v", got)
	}
	f.sent = nil
	path := file("hostname: a\nfirewall: {allow: [{protocol: icmp}]}\n")
	if got := f.run(t, "reconfigure", "machine-1", "-f", path, "--hostname", "b", "--no-wait"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	config := f.sent[0].(*pb.ReconfigureMachineRequest).GetConfig()
	if config.GetHostname() != "b" || config.GetFirewall().GetAllow()[0].GetProtocol() != "icmp" {
		t.Errorf("a flag must win over the file and leave the rest: %v", config)
	}
}

func TestAttachAndRunStartShowTheOperation(t *testing.T) {
	for _, line := range []string{"watch op-1", "run start machine-1 --plan twice"} {
		got := reimaging(pb.Operation_FAILED, &pb.ErrorStatus{Code: "STEP_TIMEOUT", Message: "slow"}).run(t,
			strings.Fields(line)...)
		if got.code != 5 || !inOrder(got.out, "→ Setting netboot…", "✗ FAILED") ||
			!strings.Contains(got.err, "hint: ingot logs op-1") {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestRunWatchEndsWithTheRun(t *testing.T) {
	got := fleet().run(t, "run", "watch", "op-1")
	if got.code != 5 || !inOrder(got.out, "begun", "over") || strings.Count(got.err, "connection lost") != 1 {
		t.Errorf("%+v", got)
	}
}

// TestAuditRowsCanBeRead: the comment first, then the other values; addresses and identities with -o wide alone.
func TestAuditRowsCanBeRead(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.audit = []*pb.AuditEntry{
		{AuditId: 8, Ts: at(2), Actor: "ada", Verb: "SET_FLAG", TargetId: "machine-1", EventData: []byte(
			`{"flag":"RMA","value":true,"comment":"fan 2\nis loud","source_address":"192.0.2.7",` +
				`"identity":"https://i#1","old":""}`)},
		{AuditId: 7, Ts: at(1), Actor: "ada", Verb: "DELETE", TargetId: "machine-2"},
	}
	got := f.run(t, "audit", "--verb", "set-*", "--since", "2026-03-01T00:00:00Z", "--until", "2026-03-02T00:00:00Z")
	if got.code != 0 || !inOrder(got.out, "DETAILS", `"fan 2\nis loud" flag=RMA value=true`+"\n", "DELETE") ||
		strings.Contains(got.out, "192.0.2.7") || strings.Contains(got.out, "old=") {
		t.Errorf("%+v", got)
	}
	want := &pb.ListAuditLogRequest{Verb: "SET_*", PageSize: 100,
		Since: timestamppb.New(at(0).AsTime().Add(-12 * time.Hour)),
		Until: timestamppb.New(at(0).AsTime().Add(12 * time.Hour))}
	if !proto.Equal(f.sent[0], want) {
		t.Errorf("asks for %v, want %v", f.sent[0], want)
	}
	if got := f.run(t, "audit", "-o", "wide"); !strings.Contains(got.out, "192.0.2.7") {
		t.Errorf("-o wide: %+v", got)
	}
}

// TestWhyAnOperationFailedOrWaits is a column, and its evidence are fields in the zone of the output.
func TestWhyAnOperationFailedOrWaits(t *testing.T) {
	f := reimaging(pb.Operation_FAILED, &pb.ErrorStatus{Code: "DISK_WRITE_ERROR", Message: "sda: I/O error"})
	f.op.Phase, f.op.Error = pb.Operation_FAILED, &pb.ErrorStatus{Code: "DISK_WRITE_ERROR", Message: "sda: I/O error"}
	f.op.WaitReason = "WAITING_FOR_AGENT"
	if got := f.run(t, "ops"); !inOrder(got.out, "REASON\n", "DISK_WRITE_ERROR\n") {
		t.Errorf("%+v", got)
	}
	f.op.Error = nil
	f.op.Evidence = map[string]string{
		"boot_id_before":   "b1",
		"boot_id_after":    "b2",
		"power_on_seen_at": "2026-03-01T12:00:07Z",
	}
	if got := f.run(t, "ops"); !inOrder(got.out, "REASON\n", "WAITING_FOR_AGENT\n") {
		t.Errorf("%+v", got)
	}
	zone := func(c *command.Config) { c.Zone = time.FixedZone("CET", 3600) }
	got := f.runWith(t, zone, "ops", "get", "op-1")
	want := "Evidence:\n  boot_id_after:     b2\n  boot_id_before:    b1\n  power_on_seen_at:  2026-03-01T13:00:07+01:00\n"
	if !strings.HasSuffix(got.out, want) {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := f.runWith(t, zone, "--utc", "ops", "get", "op-1"); !strings.Contains(got.out, "2026-03-01T12:00:07Z") {
		t.Errorf("--utc: %+v", got)
	}
}

// TestStatusWatch shows page after page. A controller that does not answer is named, and the watch goes on; one that
// refuses ends it.
func TestStatusWatch(t *testing.T) {
	f := fleet()
	gone := status.Error(codes.Unavailable, "gone")
	over := refuse(codes.PermissionDenied, pb.Reason_SCOPE_TOO_SMALL, "revoked", nil)
	f.serverInfos = []error{nil, nil, gone, nil, over}
	got := f.run(t, "--retry-for", "0s", "status", "--watch", "--every", "1s")
	if got.code != 7 || strings.Count(got.out, "SITE ") != 3 || strings.Count(got.out, "As of ") != 3 ||
		strings.Count(got.err, "the page above is older: gone") != 1 {
		t.Errorf("%+v", got)
	}
	f.serverInfos = []error{nil, nil, over}
	got = f.run(t, "status", "--watch", "--every", "1s", "-o", "json")
	if got.code != 7 || strings.Count(got.out, "\n") != 2 || !json.Valid([]byte(strings.Split(got.out, "\n")[1])) {
		t.Errorf("-o json: %+v", got)
	}
	f.serverInfos = []error{nil, over}
	terminal := func(c *command.Config) { c.OutTerminal = true }
	if got = f.runWith(
		t,
		terminal,
		"status",
		"--watch",
		"--every",
		"1s",
	); !strings.HasPrefix(
		got.out,
		"\x1b[H\x1b[2JAs of ",
	) {
		t.Errorf("on a terminal: %+v", got)
	}
	f.serverInfos = []error{gone}
	if got = f.run(t, "--retry-for", "0s", "status", "--watch"); got.code != 8 || got.out != "" {
		t.Errorf("the first page: %+v", got)
	}
	if got = f.run(t, "status", "--watch", "--every", "10ms"); got.code != 1 {
		t.Errorf("too often: %+v", got)
	}
}

// runUntilWatched runs a command that is interrupted once it watches runs.
func (f *fakeServer) runUntilWatched(t *testing.T, args ...string) {
	t.Helper()
	f.ctx, f.onRunWatch = context.WithCancel(t.Context())
	f.run(t, args...)
}

// TestRunWatchTakesWhatItIsGiven: a run, a machine, or nothing. A machine that there is not is an error.
func TestRunWatchTakesWhatItIsGiven(t *testing.T) {
	for subject, want := range map[string]string{
		"op-1": "run_id=op-1", "machine-1": "machine_id=machine-1", "": "",
	} {
		f := fleet()
		f.runUntilWatched(t, strings.Fields("run watch "+subject)...)
		if len(f.runWatches) == 0 || f.runWatches[0].GetFilter() != want {
			t.Errorf("run watch %s asks for %v, want %q", subject, f.runWatches, want)
		}
	}
	f := fleet()
	f.fail = map[string]error{"ListRuns": refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "no m-9", nil)}
	if got := f.run(t, "run", "watch", "m-9"); got.code != 3 || got.out != "" || len(f.runWatches) > 0 {
		t.Errorf("a machine that there is not: %+v", got)
	}
}

func TestBrokenHistoryHasItsExitCode(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	if got := f.run(t, "audit", "verify"); got.code != 0 ||
		got.out != "2 histories with 4 entries verified, 0 at fault\n" {
		t.Errorf("%+v", got)
	}
	f.broken = "machine-1"
	got := f.run(t, "audit", "verify")
	if got.code != command.ExitFailed || !inOrder(got.out, "MACHINE", "machine-1", "no", "entry 2 has been changed",
		"1 at fault") || strings.Contains(got.out, "(fleet)") {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "audit", "verify", "--list"); !inOrder(got.out, "(fleet)", "machine-1") {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "timeline", "machine-1", "--at", "yesterday"); got.code != command.ExitUnexpected ||
		!strings.Contains(got.err, "RFC 3339") {
		t.Errorf("%+v", got)
	}
}

// Heads that are kept in a file find what was cut off at an end, and a machine that is gone.
func TestKeptHeadsAreCompared(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	heads := f.run(t, "audit", "heads")
	if heads.code != 0 || strings.Count(heads.out, "\n") != 2 ||
		!inOrder(heads.out, `"machine_id":"machine-1"`, `"entries":"2"`,
			`"head_hash":"q80="`, `"head_at":"2026-03-01T12:00:01Z"`) {
		t.Fatalf("%+v", heads)
	}
	file := filepath.Join(t.TempDir(), "heads.json")
	gone := strings.Replace(strings.Split(heads.out, "\n")[1], "machine-1", "machine-9", 1) + "\n"
	if err := os.WriteFile(file, []byte(heads.out+gone), 0o600); err != nil {
		t.Fatal(err)
	}
	f.restored = "machine-1"
	if got := f.run(t, "audit", "verify", "--heads", file); got.code != 0 ||
		!inOrder(got.err, "machine-1: entries 2 to 2 were lost") {
		t.Errorf("%+v", got)
	}
	for _, f.lost = range []string{"machine-1", "machine-9"} {
		if got := f.run(t, "audit", "verify", "--heads", file); got.code != command.ExitFailed ||
			!inOrder(got.out, f.lost, "no", "the history ends before entry 2", "1 at fault") {
			t.Errorf("%+v", got)
		}
	}
	f.broken = "machine-1"
	if got := f.run(t, "audit", "heads"); got.code != command.ExitFailed || got.out != "" {
		t.Errorf("heads of a history at fault: %+v", got)
	}
	if got := f.run(
		t,
		"audit",
		"verify",
		"--heads",
		os.DevNull,
	); got.code == 0 ||
		!strings.Contains(got.err, "none of these") {
		t.Errorf("%+v", got)
	}
}
