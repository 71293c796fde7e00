package access_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	publicaccess "github.com/ingot-metal/ingot/controller/api/public/access"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The selections of the people in this test; what every request names is the machine "here" at site here.
const (
	everywhere = ""
	here       = "site=here"
	there      = "site=there"
)

// fleet has the machine "here" and what belongs to it.
type fleet struct{}

func (fleet) WalkMachines(_ context.Context, f machinestore.MachineFilter) ([]*pb.Machine, error) {
	if f.MachineID == "here" && f.Site == "here" {
		return []*pb.Machine{{MachineId: "here"}}, nil
	}
	return nil, nil
}

func (fleet) GetMachine(context.Context, string, string) (*pb.Machine, error) {
	return &pb.Machine{MachineId: "here"}, nil
}

func (fleet) GetOperation(_ context.Context, id string) (*pb.Operation, error) {
	if id != "op-here" {
		return nil, failure.NotFound("OPERATION_NOT_FOUND", "no operation")
	}
	return &pb.Operation{MachineId: "here"}, nil
}

func (fleet) MachineOfMAC(context.Context, string) (string, error) { return "here", nil }

func (fleet) GetWorkflow(context.Context, string) (*pb.Workflow, error) {
	return &pb.Workflow{MachineId: "here"}, nil
}

// roles is a source of tokens with a binding for each role and selection. The subject of each is "ROLE SELECTION".
type roles struct{}

func subjectOf(r access.Role, selection string) string { return string(r) + " " + selection }

func (roles) RoleBindings(context.Context, time.Time) (out []access.RoleBinding, err error) {
	for _, r := range access.Roles() {
		for _, s := range []string{everywhere, here, there} {
			out = append(out, access.RoleBinding{ID: "rb-" + subjectOf(r, s), Role: r, Subject: subjectOf(r, s), Selection: s})
		}
	}
	return out, nil
}

func (roles) RevokedSessions(context.Context, time.Time) (map[string]time.Time, error) {
	return nil, nil
}
func (roles) RecordSessions(context.Context, []access.Seen) error { return nil }

// tokenOf is the secret of the token of a role and a selection.
func tokenOf(r access.Role, selection string) string { return "token-" + string(r) + "-" + selection }

// APITokens returns a token for each scope and selection.
func (roles) APITokens(context.Context, int64, time.Time) (out []access.StoredToken, version int64, err error) {
	for _, scope := range []access.Scope{access.ScopeRead, access.ScopeOperate, access.ScopeAdmin, access.ScopeReport} {
		for _, s := range []string{everywhere, here, there} {
			secret := tokenOf(scope.Role(), s)
			out = append(out, access.StoredToken{ID: secret, Name: secret, Scope: scope, Selection: s,
				Hash: sha256.Sum256([]byte(secret))})
		}
	}
	return out, 1, nil
}

func (roles) TokenMakers(context.Context, time.Time) (map[string]access.Person, error) {
	return nil, nil
}
func (roles) UsedAPITokens(context.Context, map[string]time.Time) error { return nil }
func (roles) RecordTokenFile(context.Context, access.FileChange) error  { return nil }
func (roles) CountRefusals(context.Context, access.RefusalBatch) error  { return nil }
func (roles) ChainRefusals(context.Context) error                       { return nil }

// Verify takes "x.SUBJECT.x" for a token of the subject.
func (roles) Verify(_ context.Context, token string, _ bool) (access.Person, error) {
	subject := strings.Split(token, ".")[1]
	return access.Person{Issuer: "https://provider.test", Subject: subject, Name: subject, Session: "ss-" + subject,
		ExpiresAt: time.Now().Add(time.Hour)}, nil
}

type door struct {
	guard *auth.Guard
	held  publicaccess.Interceptor
}

// newDoor stands where the controller's frontpage does: guard and interceptor, before handlers.
func newDoor(t *testing.T) door {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	_, hash := auth.NewToken()
	if err := os.WriteFile(path, []byte("ops admin "+hash+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.OpenTokens(path, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	tokens.SignOn(roles{}, auth.DefaultLastSignOn)
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := task.New(ctx)
	g.Go("follow", func(context.Context) error {
		return tokens.Follow(ctx, auth.Source{PeopleSource: roles{}, TokenSource: roles{}, RefusalSource: roles{}},
			clock.Real())
	})
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, 5*time.Second, func() bool {
		_, err := tokens.Identify(t.Context(), "x."+subjectOf(access.Viewer, everywhere)+".x")
		return err == nil
	}, "the roles are not read")
	return door{auth.NewGuard(auth.GuardConfig{Listener: auth.Frontpage, Tokens: tokens}),
		publicaccess.Interceptor{Machines: fleet{}, Operations: fleet{}, Workflows: fleet{}, Nodes: fleet{}}}
}

// call makes a call as a subject, and reports whether the handler was reached, and with which scope.
func (d door) call(t *testing.T, method protoreflect.MethodDescriptor, req proto.Message, subject string,
) (reached bool, scope access.Scope, err error) {
	t.Helper()
	full := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	bearer := "Bearer x." + subject + ".x"
	if strings.HasPrefix(subject, "token-") {
		bearer = "Bearer " + subject
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", bearer))
	enter := func(ctx context.Context) {
		c, _ := call.Caller(ctx)
		reached, scope = true, c.Scope
	}
	if !method.IsStreamingServer() && !method.IsStreamingClient() {
		info := &grpc.UnaryServerInfo{FullMethod: full}
		_, err = d.guard.Unary()(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return d.held.Unary()(ctx, req, info, func(ctx context.Context, _ any) (any, error) {
				enter(ctx)
				return nil, nil
			})
		})
		return reached, scope, err
	}
	info := &grpc.StreamServerInfo{FullMethod: full, IsServerStream: method.IsStreamingServer(),
		IsClientStream: method.IsStreamingClient()}
	handler := func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(proto.Clone(req)); err != nil {
			return err
		}
		enter(s.Context())
		return nil
	}
	err = d.guard.Stream()(nil, &stream{ctx: ctx, first: req}, info, func(srv any, s grpc.ServerStream) error {
		return d.held.Stream()(srv, s, info, handler)
	})
	return reached, scope, err
}

// stream has one message to be read.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	first proto.Message
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) RecvMsg(m any) error {
	into, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("read into a %T", m)
	}
	proto.Merge(into, s.first)
	return nil
}

// methods are those of baremetal.v1 that need a bearer token.
func methods(t *testing.T) (out []protoreflect.MethodDescriptor) {
	t.Helper()
	for full, rule := range auth.Table() {
		if !strings.HasPrefix(full, "/baremetal.v1.") || rule.Need.Scope() == 0 {
			continue
		}
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		m, ok := d.(protoreflect.MethodDescriptor)
		if !ok {
			t.Fatalf("%s is no method", name)
		}
		out = append(out, m)
	}
	return out
}

// naming are the fields that name a machine or something of one, with the names of the machine "here".
var naming = map[protoreflect.Name]string{
	"mac_address":  "52:54:00:12:34:56",
	"machine_id":   "here",
	"node_id":      "here",
	"operation_id": "op-here",
	"run_id":       "op-here",
	"workflow_id":  "wf-here",
}

// filled returns a request that names the machine "here" in every possible field; named reports whether there is one.
func filled(t *testing.T, m protoreflect.MethodDescriptor) (req proto.Message, named bool) {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	req = typ.New().Interface()
	fields := m.Input().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch value, ok := naming[f.Name()]; {
		case ok:
			req.ProtoReflect().Set(f, protoreflect.ValueOfString(value))
			named = true
		case f.Name() == "machine":
			inner := req.ProtoReflect().Mutable(f).Message()
			inner.Set(inner.Descriptor().Fields().ByName("machine_id"), protoreflect.ValueOfString("here"))
			named = true
		case f.Name() == "filter" && filtered[m.Name()]:
			req.ProtoReflect().Set(f, protoreflect.ValueOfString("machine_id=here"))
			named = true
		}
	}
	return req, named
}

// filtered are lists and streams of what machines have, whose filters can name one.
var filtered = map[protoreflect.Name]bool{
	"ListOperations": true, "WatchOperations": true, "ListRuns": true, "WatchRuns": true, "ListWorkflows": true,
}

// wholeFleet name a machine and are about more than that one, or make one that is not there yet.
var wholeFleet = map[protoreflect.Name]bool{
	"IssueBootstrapToken": true, // also for whole sites
	"ApproveDiscovered":   true, // of a machine that is in no selection yet
	"ReleaseBudgetSlot":   true, // releases the whole fleet's budget
}

// open are the calls that any role opens: they show no machine, and lists of machines show those of the selection.
var open = map[protoreflect.Name]bool{
	"GetCaller": true, "GetServerInfo": true,
	"SetView": true, "GetView": true, "ListViews": true, "DeleteView": true,
	"ListMachines": true, "ListNodes": true, "ExplainMachines": true, "MapMachines": true,
	"WatchMachines":       true,
	"SearchMachines":      true,
	"CreateSelection":     true,
	"GetSelection":        true,
	"PreviewRollout":      true,
	"CreateRollout":       true,
	"ApproveRollout":      true,
	"PauseRollout":        true,
	"ResumeRollout":       true,
	"CancelRollout":       true,
	"GetRollout":          true,
	"ListRollouts":        true,
	"ListRolloutMachines": true,
	"WatchRollout":        true,
}

// opens has the roles that meet each need. It is written down here once more, not asked of the code.
var opens = map[auth.Need][]access.Role{
	auth.NeedRead:    {access.Viewer, access.Operator, access.Approver, access.Admin},
	auth.NeedOwn:     {access.Viewer, access.Operator, access.Approver, access.Admin},
	auth.NeedCaller:  {access.Viewer, access.Operator, access.Approver, access.Admin},
	auth.NeedOperate: {access.Operator, access.Admin},
	auth.NeedReport:  {access.Reporter, access.Operator, access.Admin},
	auth.NeedApprove: {access.Approver, access.Admin},
	auth.NeedAdmin:   {access.Admin},
}

// Every method, for every role, on every selection. What a method is about is read from its request.
func TestEveryMethodForEveryRoleAndSelection(t *testing.T) {
	d := newDoor(t)
	table := auth.Table()
	cases := 0
	for _, m := range methods(t) {
		need := table[fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())].Need
		req, named := filled(t, m)
		for _, who := range callers() {
			role := who.role
			for _, selection := range []string{everywhere, here, there} {
				cases++
				want := ""
				switch {
				case !contains(opens[need], role):
					want = "SCOPE_TOO_SMALL"
				case selection == everywhere || open[m.Name()]:
				case wholeFleet[m.Name()] || !named:
					want = "SELECTION_TOO_NARROW"
				case selection == there:
					want = "OUTSIDE_SELECTION"
				}
				reached, scope, err := d.call(t, m, req, who.name(role, selection))
				if got := failure.ReasonOf(err); got != want || reached != (want == "") {
					t.Errorf("%s as %s: %q (%v), want %q", m.FullName(), who.name(role, selection), got, err, want)
				}
				if listed := open[m.Name()] && selection != everywhere; reached && !listed && scope != role.Scope() {
					t.Errorf("%s as %s: the handler sees scope %s", m.FullName(), who.name(role, selection), scope)
				}
			}
		}
		if need == auth.NeedCaller {
			continue
		}
		cases++
		if _, _, err := d.call(t, m, req, "nobody "); failure.ReasonOf(err) != access.ReasonNoRole {
			t.Errorf("%s without a role: %v", m.FullName(), err)
		}
	}
	if cases < 1000 {
		t.Errorf("%d cases: the table was not read", cases)
	}
}

// caller is a person with a role, or a token with the same rights.
type caller struct {
	role access.Role
	name func(r access.Role, selection string) string
}

func callers() (out []caller) {
	for _, r := range access.Roles() {
		out = append(out, caller{r, subjectOf})
		if r != access.Approver { // no token has it
			out = append(out, caller{r, tokenOf})
		}
	}
	return append(out, caller{access.Reporter, tokenOf})
}

func contains(all []access.Role, r access.Role) bool {
	for _, one := range all {
		if one == r {
			return true
		}
	}
	return false
}

// A request may name several things. One outside is enough, and nothing named is too little.
func TestEverythingThatIsNamedCounts(t *testing.T) {
	d := newDoor(t)
	for name, c := range map[string]struct {
		method string
		req    proto.Message
		want   string
	}{
		"both inside": {"AdminService.ListCommands",
			&pb.ListCommandsRequest{MachineId: "here", OperationId: "op-here"}, ""},
		"another machine": {"AdminService.ListCommands",
			&pb.ListCommandsRequest{MachineId: "x", OperationId: "op-here"}, "OUTSIDE_SELECTION"},
		"no such operation": {"AdminService.ListCommands", &pb.ListCommandsRequest{MachineId: "here", OperationId: "op-x"},
			"OUTSIDE_SELECTION"},
		"nothing":     {"AdminService.ListCommands", &pb.ListCommandsRequest{}, "SELECTION_TOO_NARROW"},
		"external id": {"MachineService.GetMachine", &pb.GetMachineRequest{ExternalId: "e"}, ""},
		"no filter":   {"OperationService.ListOperations", &pb.ListOperationsRequest{}, ""},
		"another key": {"OperationService.ListOperations", &pb.ListOperationsRequest{Filter: "type=REBOOT"}, ""},
		"a machine outside": {"OperationService.WatchOperations",
			&pb.WatchOperationsRequest{Filter: "machine_id=x"}, "OUTSIDE_SELECTION"},
		"by operation": {"OperationService.WatchOperations",
			&pb.WatchOperationsRequest{Filter: "operation_id=op-here"}, ""},
		"changes":  {"MachineService.ListMachines", &pb.ListMachinesRequest{Cursor: "c"}, ""},
		"an order": {"MachineService.ListMachines", &pb.ListMachinesRequest{OrderBy: "rack"}, "SELECTION_TOO_NARROW"},
	} {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("baremetal.v1." + c.method))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := found.(protoreflect.MethodDescriptor)
		if !ok {
			t.Fatalf("%s is no method", c.method)
		}
		_, _, err = d.call(t, m, c.req, subjectOf(access.Admin, here))
		if got := failure.ReasonOf(err); got != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
	}
}
