package attack

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/harness"
)

// rightsAttempts are those of clients and admins: secrets, credentials, downloads, and the audit log.
func rightsAttempts() []Attempt {
	return []Attempt{
		{Party: Reader, Attempt: "read secrets", Rule: 8, Run: readSecrets},
		{Party: Reader, Attempt: "call what is for others", Rule: 8,
			Run: callAll(access.ScopeRead, auth.NeedOperate, auth.NeedAdmin, auth.NeedApprove, auth.NeedReport)},
		{Party: Operator, Attempt: "call what is for admins", Rule: 8,
			Run: callAll(access.ScopeOperate, auth.NeedAdmin, auth.NeedApprove)},
		{Party: Operator, Attempt: "send credentials to an address of its own", Rule: 1, Run: aimElsewhere},
		{Party: Operator, Attempt: "work outside of a role that a sign-on gives", Rule: 9, Run: outsideRole,
			Config: theProvider().config()},
		{Party: Admin, Attempt: "change something unseen", Rule: 7, Run: unseen,
			Config: "images: {allow_networks: [127.0.0.0/8]}\n"},
		{Party: Admin, Attempt: "fetch an image from inside, or by a detour", Rule: 6, Run: fetchInside},
	}
}

// readSecrets plants every kind of secret, and reads everything that a reader may.
func readSecrets(ctx context.Context, r *Rig) (Outcome, error) {
	secrets, values, err := r.plant(ctx)
	if err != nil {
		return Outcome{}, err
	}
	reader := r.Client("reader", access.ScopeRead)
	answered, answers := 0, 0
	leak := ""
	methods := methodsOf(auth.NeedRead)
	for _, method := range methods {
		in, err := filled(method, values)
		if err != nil {
			return Outcome{}, err
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		before := answers
		err = call(once, reader, method, in, func(m proto.Message) {
			answers++
			wire, err := proto.Marshal(m)
			for name, secret := range secrets {
				if err == nil && bytes.Contains(wire, secret) {
					leak = method + " shows the " + name
				}
			}
		})
		cancel()
		if harness.HasReason(err, access.ReasonScopeTooSmall) {
			return Outcome{}, fmt.Errorf("%s is refused: %w", method, err)
		}
		if answers > before {
			answered++
		}
	}
	switch {
	case leak != "":
		return breached("%s", leak), nil
	case answered < len(methods)/2:
		return Outcome{}, fmt.Errorf("%d of %d methods answered: the requests are wrong", answered, len(methods))
	}
	return held("%d answers of %d methods, none with one of %d secrets", answers, answered, len(secrets)), nil
}

// plant stores a secret of each kind, and returns them with the values that name the objects.
func (r *Rig) plant(ctx context.Context) (secrets map[string][]byte, values map[string]string, err error) {
	values, err = r.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	text := func(kind string) string { return kind + strings.TrimPrefix(ids.New("x"), "x-") }
	bmc, region, cloud, bearer := text("bmc"), "a:b:"+text("maas"), text("cloud"), text("bearer")
	argument := text("argument")
	key, _ := sshtest.Key(r.T)
	hook, err := r.C.Admin().CreateWebhook(ctx,
		&baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{WebhookId: "h-1", Url: "https://192.0.2.1/x"}})
	if err != nil {
		return nil, nil, err
	}
	token, err := r.C.Admin().CreateAPIToken(ctx, &baremetalv1.CreateAPITokenRequest{Name: "planted", Scope: "admin"})
	if err != nil {
		return nil, nil, err
	}
	bundle := r.C.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: r.Machine})
	ca := strings.ReplaceAll(values["ca"], "\n", "")
	for method, in := range map[string]string{
		"AdminService/SetBMCCredentials": `{"credentials_ref": "rack", "username": "root", "password": "` + bmc +
			`", "allowed_endpoints": ["10.0.0.0/8"]}`,
		"ScriptService/SetSSHCredentials": `{"credentials_ref": "rack", "username": "root", "private_key": "` +
			values["sshkey"] + `"}`,
		"MAASService/SetMAASRegion": `{"region_ref": "r", "endpoint": "http://192.0.2.1:5240/MAAS", "api_key": "` +
			region + `", "user_data": "#cloud-config\n#` + cloud + `"}`,
		"ClusterService/SetCluster": `{"cluster_ref": "k8s", "server": "https://192.0.2.1:6443", "ca_pem": "` + ca +
			`", "bearer_token": "` + bearer + `"}`,
		"MachineService/EnterMaintenance": `{"machine_id": "` + values["host"] + `", "request_id": "p-1"}`,
		"PlanService/CreatePlan": `{"plan": {"plan_id": "p-1", "steps": [{"name": "one", "ssh": {"command": "x-1", "args":
			["--key", "` + argument + `"], "secret_args": [1]}}]}}`,
		"NodeService/SetNodeGroup": `{"group": "g-1", "health_checks": ["none"]}`,
		"BudgetService/SetBudget":  `{"budget": {"name": "b-1", "domain": "fleet", "at_once": 3}}`,
		"ScriptService/AddScript":  `{"script": {"script_ref": "x-1"}, "content": "ZWNobwo="}`,
		"MachineService/RegisterMachine": `{"machine": {"machine_id": "` + r.Machine +
			`", "spec": {"bmc_credentials_ref": "rack", "bmc_endpoint": "10.0.0.1"}}}`,
	} {
		out := ""
		req, err := request(service+method, in)
		if err == nil {
			err = call(ctx, r.C.Client, service+method, req, func(m proto.Message) {
				if op, ok := m.(*baremetalv1.Operation); ok {
					out = op.GetOperationId()
				}
			})
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", method, err)
		}
		if out != "" {
			values["operation_id"], values["run_id"] = out, out
		}
	}
	r.C.Wait(values["operation_id"], time.Minute)
	for field, v := range map[string]string{
		"machine_id": values["host"], "node_id": values["host"], "agent_id": values["agent"], "site": siteName,
		"plan_id":     "p-1",
		"cluster_ref": "k8s", "script_ref": "x-1", "webhook_id": "h-1", "group": "g-1",
	} {
		values[field] = v
	}
	return map[string][]byte{
		"password of a BMC": []byte(bmc), "key for SSH": key, "key of MAAS": []byte(region), "user data": []byte(cloud),
		"token of a cluster": []byte(bearer), "secret of a webhook": []byte(hook.GetSecret()),
		"argument of a script": []byte(argument), "bearer token": []byte(token.GetSecret()),
		"bootstrap token": []byte(bundle),
	}, values, nil
}

// callAll calls every method of the needs with a token of a scope that none of them is for.
func callAll(scope access.Scope, needs ...auth.Need) func(context.Context, *Rig) (Outcome, error) {
	return func(ctx context.Context, r *Rig) (Outcome, error) {
		c := r.Client("small", scope)
		methods := methodsOf(needs...)
		for _, method := range methods {
			in, err := filled(method, map[string]string{"machine_id": r.Machine})
			if err != nil {
				return Outcome{}, err
			}
			if err := call(ctx, c, method, in, func(proto.Message) {}); !harness.HasReason(err, access.ReasonScopeTooSmall) {
				return breached("%s: %v", method, err), nil
			}
		}
		// The refusals are counted by method and minute, and in the audit log when the minute is over.
		return r.recorded(ctx, "small", len(methods))
	}
}

// recorded waits until the audit log has this many rows of refusals of an actor.
func (r *Rig) recorded(ctx context.Context, actor string, want int) (Outcome, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	got := 0
	for ctx.Err() == nil {
		rows, err := r.C.Admin().ListAuditLog(ctx, &baremetalv1.ListAuditLogRequest{Actor: actor, PageSize: 1000})
		if err != nil {
			return Outcome{}, err
		}
		methods := map[string]bool{}
		for _, e := range rows.GetEntries() {
			if e.GetVerb() == "REFUSED" {
				methods[string(e.GetEventData())+e.GetTargetId()] = true
			}
		}
		if got = len(methods); got >= want {
			return held("%d methods refused, each in the audit log", want), nil
		}
		<-tick.C
	}
	return breached("%d of %d refusals are in the audit log", got, want), nil
}

// trap listens, and counts who connects.
func (r *Rig) trap() (address string, connections *atomic.Int64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	connections = &atomic.Int64{}
	task.Background("a trap", func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			c.Close()
		}
	})
	r.T.Cleanup(func() { l.Close() })
	return l.Addr().String(), connections, nil
}

// aimElsewhere: an operator points a machine with credentials at its own listener, in every way that the API has. Then
// it has the site's agent work on the machine.
func aimElsewhere(ctx context.Context, r *Rig) (Outcome, error) {
	trap, connections, err := r.trap()
	if err != nil {
		return Outcome{}, err
	}
	admin, fingerprint := r.C, "SHA256:"+strings.Repeat("A", 43)
	key, _ := sshtest.Key(r.T)
	for _, err := range []error{
		second(admin.Admin().SetBMCCredentials(ctx, &baremetalv1.SetBMCCredentialsRequest{
			CredentialsRef: "rack", Username: "root", Password: "secret", AllowedEndpoints: []string{"127.0.0.0/8"},
		})),
		second(baremetalv1.NewScriptServiceClient(admin.Conn()).SetSSHCredentials(ctx, &baremetalv1.SetSSHCredentialsRequest{
			CredentialsRef: "rack", Username: "root", PrivateKey: key,
		})),
	} {
		if err != nil {
			return Outcome{}, err
		}
	}
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: r.T.TempDir()})
	if err != nil {
		return Outcome{}, err
	}
	site := admin.NewSite(r.T, "rack", world, harness.MachineOptions{Change: func(cfg *agent.Config) {
		cfg.Site = &agent.SiteConfig{CacheDir: r.T.TempDir(), CacheBytes: 1 << 30, BMCPoll: time.Second,
			ScriptDir: r.T.TempDir()}
	}})
	site.WaitConnected()
	honest := &baremetalv1.MachineSpec{
		Site: "rack", BmcEndpoint: "redfish://127.0.0.1:9", BmcCredentialsRef: "rack",
		SshEndpoint: "127.0.0.1:9", SshCredentialsRef: "rack", SshHostKeys: []string{fingerprint},
	}
	m := admin.Register(&baremetalv1.Machine{Spec: honest})
	operator := r.Client("operator", access.ScopeOperate)
	tries := 0
	for name, change := range map[string]func(*baremetalv1.MachineSpec){
		"bmc_endpoint":  func(s *baremetalv1.MachineSpec) { s.BmcEndpoint = "redfish://" + trap },
		"ssh_endpoint":  func(s *baremetalv1.MachineSpec) { s.SshEndpoint = trap },
		"ssh_host_keys": func(s *baremetalv1.MachineSpec) { s.SshHostKeys = []string{"SHA256:" + strings.Repeat("B", 43)} },
		"site":          func(s *baremetalv1.MachineSpec) { s.Site = "elsewhere" },
	} {
		bad := &baremetalv1.Machine{MachineId: m.GetMachineId(), Spec: proto.CloneOf(honest)}
		change(bad.Spec)
		fresh := &baremetalv1.Machine{MachineId: ids.New(ids.Machine), Spec: bad.GetSpec()}
		for _, err := range []error{
			second(operator.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: bad})),
			second(operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: bad})),
			second(operator.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: fresh})),
		} {
			if tries++; !harness.HasReason(err, access.ReasonScopeTooSmall) {
				return breached("an operator changes %s: %v", name, err), nil
			}
		}
	}
	op, err := operator.Machines().EnterMaintenance(ctx,
		&baremetalv1.EnterMaintenanceRequest{MachineId: m.GetMachineId(), RequestId: "1"})
	if err != nil {
		return Outcome{}, err
	}
	r.C.Wait(op.GetOperationId(), time.Minute)
	if _, err = operator.Machines().RebootMachine(ctx,
		&baremetalv1.RebootMachineRequest{MachineId: m.GetMachineId(), RequestId: "2"}); err != nil {
		return Outcome{}, err
	}
	hold(ctx, 3*time.Second) // three looks of the agent at its BMCs
	if n := connections.Load(); n > 0 {
		return breached("%d connections reached the address", n), nil
	}
	return held("%d changes refused; nothing connected to the address", tries), nil
}

func second[T any](_ T, err error) error { return err }

// fetchInside: image URLs that lead to the controller's own networks, at once or by a redirect.
func fetchInside(ctx context.Context, r *Rig) (Outcome, error) {
	trap, connections, err := r.trap()
	if err != nil {
		return Outcome{}, err
	}
	detour := httptest.NewTLSServer(http.RedirectHandler("http://"+trap+"/x", http.StatusFound))
	r.T.Cleanup(detour.Close)
	urls := []string{
		"http://" + trap + "/x", "https://" + trap + "/x", "https://localhost:" + trap[strings.LastIndexByte(trap, ':')+1:] +
			"/x", detour.URL,
		"https://169.254.169.254/latest/meta-data", "https://[::1]:9/x", "https://[fe80::1]/x", "https://10.0.0.1/x",
		"file:///etc/passwd",
		"https://[::ffff:127.0.0.1]:" + trap[strings.LastIndexByte(trap, ':')+1:] + "/x", "https://0.0.0.0/x",
	}
	for i, u := range urls {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := r.C.Admin().AddImage(once, &baremetalv1.AddImageRequest{Image: &baremetalv1.Image{
			ImageRef: fmt.Sprintf("i-%d", i), Url: u, Format: "raw", Kind: "os", Arch: "amd64", Firmware: []string{"uefi"},
			Sha256File: hex.EncodeToString(make([]byte, 32)),
		}})
		timedOut := errors.Is(once.Err(), context.DeadlineExceeded)
		cancel()
		if err == nil || timedOut {
			return breached("%s: %v", u, err), nil
		}
	}
	if n := connections.Load(); n > 0 {
		return breached("%d connections reached an address inside", n), nil
	}
	return held("%d addresses refused; nothing connected to them", len(urls)), nil
}
