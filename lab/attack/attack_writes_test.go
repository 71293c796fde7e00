package attack

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/lab/harness"
)

// write is one call that changes something, with its request in JSON. $name stands for a value that was kept before.
type write struct {
	method, request string
	// keep names values after fields of the answer.
	keep map[string]string
}

// reads reports whether it changes nothing, and is only there for what it answers.
func (w write) reads() bool { return auth.Table()[service+w.method].Need == auth.NeedRead }

const service = "/baremetal.v1."

// writes are calls of every method that changes something, in an order in which each succeeds.
func writes() []write {
	id := func(name, field string) map[string]string { return map[string]string{name: field} }
	return []write{
		{"MachineService/RegisterMachine", `{"machine": {"machine_id": "m-w"}}`, nil},
		{"MachineService/UpdateMachine", `{"machine": {"machine_id": "m-w", "labels": {"a": "b"}}, "update_mask": "labels"}`,
			nil},
		{"MachineService/EnterMaintenance", `{"machine_id": "$host", "request_id": "w-1"}`, id("wait", "operation_id")},
		{"MachineService/RebootMachine", `{"machine_id": "$host", "request_id": "w-2"}`, id("wait", "operation_id")},
		{"MachineService/NetbootMachine", `{"machine_id": "$host", "request_id": "w-3"}`, id("wait", "operation_id")},
		{"MachineService/TestMachine", `{"machine_id": "$host", "request_id": "w-test", "duration_seconds": 1}`,
			id("wait", "operation_id")},
		{"MachineService/ReconfigureMachine", `{"machine_id": "$host", "request_id": "w-4", "config": {"hostname": "blue"}}`,
			id("wait", "operation_id")},
		{"MachineService/ReimageMachine", `{"machine_id": "$host", "request_id": "w-5", "image_ref": "any"}`,
			id("wait", "operation_id")},
		{"MachineService/ExitMaintenance", `{"machine_id": "$host", "request_id": "w-6"}`, id("wait", "operation_id")},
		{"MachineService/EnterMaintenance", `{"machine_id": "m-w", "request_id": "w-7"}`, id("wait", "operation_id")},
		{"MachineService/RebootMachine", `{"machine_id": "m-w", "request_id": "w-8"}`, id("operation", "operation_id")},
		{"MachineService/CancelOperation", `{"operation_id": "$operation"}`, nil},
		{"PlanService/CreatePlan", `{"plan": {"plan_id": "p-w", "steps": [{"name": "one", "reboot": {}}]}}`, nil},
		{"PlanService/DeletePlan", `{"plan_id": "p-w"}`, nil},
		{"RunService/StartRun", `{"machine_id": "m-w", "request_id": "w-9", "type": "REBOOT"}`, id("run", "run_id")},
		{"RunService/CancelRun", `{"run_id": "$run"}`, nil},
		{"NodeService/SetNodeGroup", `{"group": "g-w", "health_checks": ["none"]}`, nil},
		{"NodeService/UpdateNode", `{"node_id": "m-w", "group": "g-w", "update_mask": "group"}`, nil},
		{"NodeService/TransitionNode",
			`{"node_id": "m-w", "request_id": "w-10", "state": "NODE_STATE_QUARANTINED", "comment": "it smells"}`, nil},
		{"AdminService/ClearIntervention", `{"machine_id": "m-w", "comment": "aired"}`, nil},
		{"RolloutService/CreateSelection", `{"request_id": "w-21", "filter": "labels.a=b"}`, nil},
		{"RolloutService/PreviewRollout", `{"spec": {"filter": "labels.a=b", "type": "REBOOT"}}`, id("digest", "digest")},
		{"RolloutService/CreateRollout", `{"request_id": "w-11", "comment": "why", "digest": "$digest",
			"spec": {"filter": "labels.a=b", "type": "REBOOT"}}`, id("rollout", "rollout_id")},
		{"RolloutService/PauseRollout", `{"rollout_id": "$rollout", "comment": "wait"}`, nil},
		{"RolloutService/ResumeRollout", `{"rollout_id": "$rollout", "comment": "go"}`, nil},
		{"RolloutService/CancelRollout", `{"rollout_id": "$rollout", "cancel_operations": true, "comment": "stop"}`, nil},
		{
			"WorkflowService/StartWorkflow",
			`{"machine_id": "$host", "request_id": "w-12", "kind": "DECOMMISSION", "mode": "REIMAGE", "enter_maintenance": true, "params": {"image_ref": "any"}}`,
			nil,
		},
		{"MachineService/GetMachine", `{"machine_id": "$host"}`, id("workflow", "status.active_workflow_id")},
		{"WorkflowService/ActOnWorkflow",
			`{"workflow_id": "$workflow", "request_id": "w-13", "action": "WORKFLOW_ACTION_CANCEL", "comment": "not yet"}`, nil},
		{"MachineService/DeleteMachine", `{"machine_id": "m-w", "purge": true}`, nil},
		{"NodeService/ApproveDiscovered",
			`{"site": "segment", "mac_address": "52:54:00:aa:00:77", "machine_id": "m-a", "request_id": "w-20"}`, nil},
		{"NodeService/ReportNode", `{"mac_address": "52:54:00:aa:00:77", "installation_status": "started"}`, nil},
		{"AdminService/TrustBMCCertificate", `{"machine_id": "$victim", "sha256": "$pin", "comment": "new board"}`, nil},

		{"AdminService/IssueBootstrapToken", `{"machine_id": "$host", "request_id": "w-14"}`, id("token", "token.token_id")},
		{"AdminService/RevokeBootstrapToken", `{"token_id": "$token"}`, nil},
		{"AdminService/SetMachineFlag", `{"machine_id": "$host", "flag": "RMA", "value": true, "comment": "fan"}`, nil},
		{"AdminService/RequireIdentity", `{"group": "g-w", "level": "tpm", "comment": "strict"}`, nil},
		{"AdminService/UploadImage", "$upload", nil},
		{
			"AdminService/AddImage",
			`{"image": {"image_ref": "fetched", "url": "$url", "format": "raw", "kind": "installer-initrd", "arch": "amd64", "sha256_file": "$sum"}}`,
			nil,
		},
		{"AdminService/RemoveImage", `{"image_ref": "fetched"}`, nil},
		{"AdminService/CreateWebhook", `{"webhook": {"webhook_id": "h-w", "url": "https://192.0.2.1/x"}}`, nil},
		{"AdminService/UpdateWebhook", `{"webhook": {"webhook_id": "h-w", "filter": "site=a"}, "update_mask": "filter"}`,
			nil},
		{"AdminService/TestWebhook", `{"webhook_id": "h-w"}`, nil},
		{"AdminService/DeleteWebhook", `{"webhook_id": "h-w"}`, nil},
		{
			"AdminService/SetSite",
			`{"site": "s-w", "segments": [{"name": "a", "interface": "eth0", "address": "10.9.0.1/24", "pool_start": "10.9.0.10", "pool_end": "10.9.0.20"}]}`,
			nil,
		},
		{"AdminService/SetBMCCredentials",
			`{"credentials_ref": "c-w", "username": "u", "password": "p", "allowed_endpoints": ["10.0.0.1"]}`, nil},
		{"MachineService/RegisterMachine",
			`{"machine": {"machine_id": "m-bmc", "spec": {"bmc_endpoint": "10.0.0.1", "bmc_credentials_ref": "c-w"}}}`, nil},
		{"AdminService/UnparkBMC", `{"machine_id": "m-bmc", "comment": "it was starting"}`, nil},
		{"MachineService/SetIdentifyLight", `{"machine_id": "m-bmc", "lit": true}`, nil},
		{"MachineService/DeleteMachine", `{"machine_id": "m-bmc", "purge": true}`, nil},
		{"AdminService/DeleteBMCCredentials", `{"credentials_ref": "c-w"}`, nil},
		{"AdminService/CreateAPIToken", `{"name": "t-w", "scope": "read"}`, nil},
		{"AdminService/RevokeAPIToken", `{"token_id": "$apitoken"}`, nil},
		{"BudgetService/SetBudget", `{"budget": {"name": "b-w", "domain": "fleet", "at_once": 3}}`, nil},
		{"BudgetService/DeleteBudget", `{"name": "b-w"}`, nil},
		{"RolloutService/SetApprovalPolicy",
			`{"policy": {"name": "ap-w", "harm": "DESTROYS", "selection": "site=nowhere", "machines": 3}}`, nil},
		{"RolloutService/DeleteApprovalPolicy", `{"name": "ap-w"}`, nil},
		{"BudgetService/FreezeFleet", `{"comment": "smoke"}`, nil},
		{"AdminService/ThawFleet", `{"comment": "toast"}`, nil},
		{"ScriptService/AddScript", `{"script": {"script_ref": "x-w"}, "content": "ZWNobwo="}`, nil},
		{"ScriptService/RemoveScript", `{"script_ref": "x-w"}`, nil},
		{"ScriptService/SetSSHCredentials", `{"credentials_ref": "k-w", "username": "root", "private_key": "$sshkey"}`, nil},
		{"ScriptService/DeleteSSHCredentials", `{"credentials_ref": "k-w"}`, nil},
		{"ClusterService/SetCluster",
			`{"cluster_ref": "k8s-w", "server": "https://192.0.2.1:6443", "ca_pem": "$ca", "bearer_token": "abc"}`, nil},
		{"ClusterService/DeleteCluster", `{"cluster_ref": "k8s-w"}`, nil},
		{"MAASService/SetMAASRegion", `{"region_ref": "r-w", "endpoint": "http://192.0.2.1:5240/MAAS", "api_key": "a:b:c"}`,
			nil},
		{"MAASService/DeleteMAASRegion", `{"region_ref": "r-w"}`, nil},
		{"ViewService/SetView", `{"view": {"name": "v-w", "filter": "site=a", "shared": true}}`, nil},
		{"ViewService/DeleteView", `{"name": "v-w"}`, nil},
		{"AdminService/RevokeAgent", `{"agent_id": "$agent", "reason": "stolen"}`, nil},
		{"AdminService/ScrubAuditEventData", `{"target_id": "m-w"}`, nil},
	}
}

// heldElsewhere are methods whose situation takes more than this suite, with the test that looks at their audit rows.
var heldElsewhere = map[string]string{
	"AdminService/SettleCommand":         "lab/e2e.TestADeadlineWithoutAResultFencesUntilAnOperatorSettles",
	"AdminService/DiscoverBMCs":          "lab/e2e/discover.TestAnAdminDiscoversARack",
	"AdminService/ForgetTPM":             "controller/store/identity.TestTPMIsRecordedByItsProof",
	"AdminService/RedeliverWebhook":      "controller/engine/delivery.TestRedelivery",
	"RolloutService/ApproveRollout":      "controller/api/public/rollout.TestSteeringARollout",
	"AccessService/CreateRoleBinding":    "controller/api/public.TestRoleBindings",
	"AccessService/DeleteRoleBinding":    "controller/api/public.TestRoleBindings",
	"AccessService/RevokeSession":        "lab/signon.TestRightsEndWithTheToken",
	"AuthorityService/RotateAuthority":   "controller/api/public/authority.TestTheCAIsRotatedOnce",
	"AuthorityService/WithdrawAuthority": "controller/api/public/authority.TestTheCAIsRotatedOnce",
	"BudgetService/ReleaseBudgetSlot":    "controller/store/budget.TestAdminGivesASlotBack",
}

// changers are all methods that change something: those for readers about their own things, those for operators, and
// those for admins and installers that read nothing alone.
func changers() []string {
	var out []string
	for _, m := range methodsOf(auth.NeedOwn, auth.NeedOperate, auth.NeedAdmin, auth.NeedApprove, auth.NeedReport) {
		name := strings.TrimPrefix(m, service)
		_, verb, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(verb, "List") && !strings.HasPrefix(verb, "Get") && verb != "VerifyTimeline" {
			out = append(out, name)
		}
	}
	return out
}

func TestEveryWriteIsTriedForItsAuditRow(t *testing.T) {
	t.Parallel()
	tried := maps.Clone(heldElsewhere)
	for _, w := range writes() {
		if !w.reads() {
			tried[w.method] = "here"
		}
	}
	all := changers()
	for _, m := range all {
		if tried[m] == "" {
			t.Errorf("%s: nobody looks whether it leaves an audit row", m)
		}
		delete(tried, m)
	}
	for m := range tried {
		t.Errorf("%s changes nothing", m)
	}
}

// unseen makes every write, and looks for its row of the audit log: who, from where, and the request.
func unseen(ctx context.Context, r *Rig) (Outcome, error) {
	values, err := r.ready(ctx)
	if err != nil {
		return Outcome{}, err
	}
	last, err := r.newestAudit(ctx)
	if err != nil {
		return Outcome{}, err
	}
	all := writes()
	for _, w := range all {
		text := w.request
		for name, v := range values {
			text = strings.ReplaceAll(text, "$"+name, v)
		}
		if err := r.write(ctx, w, text, values); err != nil {
			return Outcome{}, fmt.Errorf("%s %s: %w", w.method, text, err)
		}
		if w.reads() {
			continue
		}
		rows, err := r.C.Admin().ListAuditLog(ctx, &baremetalv1.ListAuditLogRequest{Actor: "tester", PageSize: 20})
		if err != nil {
			return Outcome{}, err
		}
		missing := lacks(rows.GetEntries(), last, w.method, strings.Contains(text, "request_id"))
		if missing != "" {
			return breached("%s: %s", w.method, missing), nil
		}
		if last, err = r.newestAudit(ctx); err != nil {
			return Outcome{}, err
		}
	}
	if out, err := r.disguised(ctx); err != nil || out.Breach {
		return out, err
	}
	return held("%d writes of %d methods, each with actor, source address and request id", len(all),
		len(changers())-len(heldElsewhere)), nil
}

// disguised writes over REST with a header that names another source.
func (r *Rig) disguised(ctx context.Context) (Outcome, error) {
	const forged = "192.0.2.66"
	body := strings.NewReader(`{"planId": "by-rest", "steps": [{"name": "one", "reboot": {}}]}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.Addresses().REST+"/api/v1/plans", body)
	if err != nil {
		return Outcome{}, err
	}
	for key, value := range map[string]string{
		"Authorization": "Bearer " + r.C.Token(), "Content-Type": "application/json", "X-Forwarded-For": forged,
		"Grpc-Metadata-X-Forwarded-For": forged,
	} {
		req.Header.Set(key, value)
	}
	answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: r.TLS()}}).Do(req)
	if err != nil {
		return Outcome{}, err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
		return Outcome{}, fmt.Errorf("%s: %s: %w", answer.Status, text, err)
	}
	rows, err := r.C.Admin().ListAuditLog(ctx, &baremetalv1.ListAuditLogRequest{TargetId: "by-rest"})
	if err != nil {
		return Outcome{}, err
	}
	if text := rows.String(); !strings.Contains(text, `source_address\": \"127.`) || strings.Contains(text, forged) {
		return breached("over REST: %s", text), nil
	}
	return Outcome{}, nil
}

// lacks returns the part of a call that its rows, which come after another row, do not record. A rollout that goes on
// meanwhile writes rows of its own: they come from no address.
func lacks(rows []*baremetalv1.AuditEntry, after int64, method string, hasRequest bool) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(e *baremetalv1.AuditEntry) bool {
		return e.GetAuditId() <= after || strings.HasPrefix(e.GetRequestId(), "ro-")
	})
	if len(rows) == 0 {
		return "no row"
	}
	for _, e := range rows {
		if method != "AdminService/ScrubAuditEventData" &&
			!strings.Contains(string(e.GetEventData()), `"source_address": "127.`) {
			return "no source address in " + e.String()
		}
		hasRequest = hasRequest && e.GetRequestId() == ""
	}
	if hasRequest {
		return "no row has the request id"
	}
	return ""
}

// write makes one call, keeps what it asks for, and waits for an operation that is kept as "wait".
func (r *Rig) write(ctx context.Context, w write, text string, values map[string]string) error {
	if w.request == "$upload" {
		return r.upload(ctx)
	}
	in, err := request(service+w.method, text)
	if err != nil {
		return err
	}
	var out proto.Message
	again := func() error {
		return call(ctx, r.C.Client, service+w.method, in, func(m proto.Message) { out = m })
	}
	err = again()
	for harness.HasReason(err, "MACHINE_BUSY") && ctx.Err() == nil { // what was canceled before ends in its own time
		hold(ctx, 50*time.Millisecond)
		err = again()
	}
	if err != nil {
		return err
	}
	for name, path := range w.keep {
		m, value := out.ProtoReflect(), ""
		for field := range strings.SplitSeq(path, ".") {
			f := m.Descriptor().Fields().ByName(protoreflect.Name(field))
			if f == nil {
				return fmt.Errorf("%s has no field %s", m.Descriptor().Name(), field)
			}
			if f.Kind() == protoreflect.MessageKind {
				m = m.Get(f).Message()
			} else {
				value = m.Get(f).String()
			}
		}
		values[name] = value
	}
	if op, ok := values["wait"]; ok {
		delete(values, "wait")
		r.C.Wait(op, mostTime)
	}
	return nil
}

// ready makes what the writes are about, and the values that their requests name.
func (r *Rig) ready(ctx context.Context) (map[string]string, error) {
	host := r.C.NewMachine(r.T, harness.MachineOptions{})
	host.WaitConnected()
	r.C.Register(&baremetalv1.Machine{MachineId: "m-d"})
	s, err := newSegment(ctx, r)
	if err != nil {
		return nil, err
	}
	pin := strings.Repeat("ab", 32)
	_, err = s.fleet.SyncSite(ctx, &fleetv1.SyncSiteRequest{
		Unknown: []*fleetv1.UnknownMachine{{Segment: "boot", MacAddress: "52:54:00:aa:00:77", Address: "10.77.0.12",
			SeenAt: timestamppb.Now()}},
		Bmcs: []*fleetv1.BMCObservation{{
			MachineId: s.Machine, Endpoint: "10.77.0.9", Reachable: true, SeenAt: timestamppb.Now(),
			CertificateSha256: strings.Repeat("cd", 32), OfferedCertificateSha256: pin,
		}},
	})
	if err != nil {
		return nil, err
	}
	token, err := r.C.Admin().CreateAPIToken(ctx, &baremetalv1.CreateAPITokenRequest{Name: "short-lived", Scope: "read"})
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(r.C.CAFile())
	if err != nil {
		return nil, err
	}
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write(initrd())
	}))
	r.T.Cleanup(files.Close)
	key, _ := sshtest.Key(r.T)
	sum := sha256.Sum256(initrd())
	return map[string]string{
		"host": host.ID, "agent": r.C.Machine(host.ID).GetStatus().GetAgentId(), "victim": s.Machine, "pin": pin,
		"apitoken": token.GetToken().GetTokenId(), "url": files.URL, "sum": hex.EncodeToString(sum[:]),
		"ca": base64.StdEncoding.EncodeToString(ca), "sshkey": base64.StdEncoding.EncodeToString(key),
	}, nil
}

// initrd is the beginning of an archive, and enough for the catalogue.
func initrd() []byte { return append([]byte("070701"), make([]byte, 1<<20)...) }

// upload sends an initrd.
func (r *Rig) upload(ctx context.Context) error {
	stream, err := r.C.Admin().UploadImage(ctx)
	if err != nil {
		return err
	}
	for _, part := range []*baremetalv1.UploadImageRequest{
		{Part: &baremetalv1.UploadImageRequest_Image{Image: &baremetalv1.Image{ImageRef: "sent", Format: "raw",
			Kind: "installer-initrd", Arch: "amd64"}}},
		{Part: &baremetalv1.UploadImageRequest_Data{Data: initrd()}},
	} {
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

func (r *Rig) newestAudit(ctx context.Context) (int64, error) {
	rows, err := r.C.Admin().ListAuditLog(ctx, &baremetalv1.ListAuditLogRequest{PageSize: 1})
	if err != nil || len(rows.GetEntries()) == 0 {
		return 0, fmt.Errorf("the audit log is empty: %w", err)
	}
	return rows.GetEntries()[0].GetAuditId(), nil
}
