package attack

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/lab/harness"
)

func tokenAttempts() []Attempt {
	return []Attempt{
		{Party: Admin, Attempt: "approve one's own rollout by a token of a token", Rule: 13, Run: approveByChild},
		{Party: Admin, Attempt: "outlive the end of one's role by a token", Rule: 13, Run: outliveRole,
			Config: theProvider().config()},
		{Party: Admin, Attempt: "outlive the end of a token by its token", Rule: 13, Run: outliveToken},
		{Party: Operator, Attempt: "leave the selection of a token", Rule: 14, Run: leaveSelection},
		{Party: Box, Attempt: "report about another machine, and read, with an installer's token", Rule: 14,
			Run: reportElse},
	}
}

// token makes a token with the rights of a client.
func token(ctx context.Context, c *harness.Client, name, scope, selection string) (*harness.Client, string, error) {
	made, err := c.Admin().CreateAPIToken(ctx,
		&baremetalv1.CreateAPITokenRequest{Name: name, Scope: scope, Selection: selection})
	if err != nil {
		return nil, "", err
	}
	child := c.WithToken(made.GetSecret())
	// Every controller knows it within 2 s.
	return child, made.GetToken().GetTokenId(), until(ctx, func() error {
		_, err := baremetalv1.NewNodeServiceClient(child.Conn()).ReportNode(ctx, &baremetalv1.ReportNodeRequest{})
		if harness.HasReason(err, auth.ReasonBearerInvalid) {
			return err
		}
		return nil
	})
}

// until repeats a call until it is answered without an error.
func until(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// approveByChild: an admin's token makes a token, and that one another. Each asks to approve the first one's rollout.
func approveByChild(ctx context.Context, r *Rig) (Outcome, error) {
	child, _, err := token(ctx, r.C.Client, "child", "admin", "")
	if err != nil {
		return Outcome{}, err
	}
	grandchild, _, err := token(ctx, child, "grandchild", "admin", "")
	if err != nil {
		return Outcome{}, err
	}
	rollouts := func(c *harness.Client) baremetalv1.RolloutServiceClient {
		return baremetalv1.NewRolloutServiceClient(c.Conn())
	}
	values, err := r.ready(ctx)
	if err != nil {
		return Outcome{}, err
	}
	enter, err := r.C.Machines().EnterMaintenance(ctx,
		&baremetalv1.EnterMaintenanceRequest{MachineId: values["host"], RequestId: "1"})
	if err != nil {
		return Outcome{}, err
	}
	r.C.Wait(enter.GetOperationId(), time.Minute)
	spec := &baremetalv1.RolloutSpec{Filter: "machine_id=" + values["host"], Type: "REBOOT", RequireApproval: true}
	preview, err := rollouts(r.C.Client).PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return Outcome{}, err
	}
	made, err := rollouts(r.C.Client).CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{RequestId: "ro-1", Spec: spec,
		Digest: preview.GetDigest()})
	if err != nil {
		return Outcome{}, err
	}
	for name, c := range map[string]*harness.Client{"its maker": r.C.Client, "a child": child, "a grandchild": grandchild} {
		_, err := rollouts(c).ApproveRollout(ctx, &baremetalv1.ApproveRolloutRequest{
			RolloutId: made.GetRolloutId(), Digest: preview.GetDigest()})
		if !harness.HasReason(err, "ROLLOUT_SELF_APPROVAL") {
			return breached("%s approves the rollout: %v", name, err), nil
		}
	}
	return held("neither the token nor its child and grandchild approve"), nil
}

// outliveRole: Eve is an admin and makes a token. Her role is taken away.
func outliveRole(ctx context.Context, r *Rig) (Outcome, error) {
	p := theProvider()
	p.start()
	roles := baremetalv1.NewAccessServiceClient(r.C.Conn())
	binding, err := roles.CreateRoleBinding(ctx, &baremetalv1.CreateRoleBindingRequest{
		Binding: &baremetalv1.RoleBinding{Role: "admin", Group: "team"}})
	if err != nil {
		return Outcome{}, err
	}
	eve := r.C.WithToken(p.token())
	if err := until(ctx, func() error {
		_, err := eve.Admin().ListAPITokens(ctx, &baremetalv1.ListAPITokensRequest{})
		return err
	}); err != nil {
		return Outcome{}, err
	}
	kept, _, err := token(ctx, eve, "kept", "admin", "")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := kept.Admin().ListAPITokens(ctx, &baremetalv1.ListAPITokensRequest{}); err != nil {
		return Outcome{}, fmt.Errorf("while she is an admin: %w", err)
	}
	if _, err := roles.DeleteRoleBinding(ctx,
		&baremetalv1.DeleteRoleBindingRequest{BindingId: binding.GetBindingId()}); err != nil {
		return Outcome{}, err
	}
	ended, err := endsSoon(ctx, kept, access.ReasonNoRole)
	if err != nil || !ended {
		return breached("her token is an admin's after her role: %v", err), err
	}
	return held("her token opens nothing once she is no admin"), nil
}

// endsSoon reports whether calls of a client are refused for a reason within the time in which changes of rights count.
func endsSoon(ctx context.Context, c *harness.Client, reason string) (bool, error) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); hold(ctx, 50*time.Millisecond) {
		_, err := c.Admin().ListAPITokens(ctx, &baremetalv1.ListAPITokensRequest{})
		if harness.HasReason(err, reason) {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// outliveToken: a stolen token makes another, and is revoked.
func outliveToken(ctx context.Context, r *Rig) (Outcome, error) {
	stolen, id, err := token(ctx, r.C.Client, "stolen", "admin", "")
	if err != nil {
		return Outcome{}, err
	}
	kept, _, err := token(ctx, stolen, "kept", "admin", "")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := r.C.Admin().RevokeAPIToken(ctx, &baremetalv1.RevokeAPITokenRequest{TokenId: id}); err != nil {
		return Outcome{}, err
	}
	ended, err := endsSoon(ctx, kept, auth.ReasonBearerInvalid)
	if err != nil || !ended {
		return breached("the token of the stolen token goes on"), err
	}
	return held("what a revoked token has made is revoked with it"), nil
}

// leaveSelection: a token may operate at one site. It makes every call about a machine of another.
func leaveSelection(ctx context.Context, r *Rig) (Outcome, error) {
	const outside = "m-elsewhere"
	r.C.Register(&baremetalv1.Machine{MachineId: outside, Spec: &baremetalv1.MachineSpec{Site: "there"}})
	c, _, err := token(ctx, r.C.Client, "narrow", "operate", "site=here")
	if err != nil {
		return Outcome{}, err
	}
	values := map[string]string{"machine_id": outside, "node_id": outside, "request_id": "2",
		"filter": "machine_id=" + outside}
	refused := 0
	methods := methodsOf(auth.NeedRead, auth.NeedOperate, auth.NeedReport, auth.NeedAdmin)
	for _, method := range methods {
		in, err := filled(method, values)
		if err != nil {
			return Outcome{}, err
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = call(once, c, method, in, func(proto.Message) {})
		cancel()
		about := auth.AboutOf(method)
		switch {
		case refusedSelection(err):
			refused++
		case about == auth.AboutOther, about == auth.AboutNamed && !harness.HasReason(err, "INVALID_FIELD"):
			return breached("%s about a machine of another site: %v", method, err), nil
		}
	}
	return held("%d of %d methods refused", refused, len(methods)), nil
}

// reportElse: an installer's token for one machine reports about another one, and asks for what a report returns.
func reportElse(ctx context.Context, r *Rig) (Outcome, error) {
	const own, other = "52:54:00:aa:00:01", "52:54:00:aa:00:02"
	for id, mac := range map[string]string{"m-own": own, "m-other": other} {
		r.C.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Site: "here",
			MacAddresses: []string{mac}}})
	}
	if _, _, err := token(ctx, r.C.Client, "any", "report", ""); !harness.HasReason(err, "INVALID_FIELD") {
		return breached("a token reports about every machine: %v", err), nil
	}
	c, _, err := token(ctx, r.C.Client, "pxe", "report", "machine_id=m-own")
	if err != nil {
		return Outcome{}, err
	}
	nodes := baremetalv1.NewNodeServiceClient(c.Conn())
	answer, err := nodes.ReportNode(ctx, &baremetalv1.ReportNodeRequest{MacAddress: own, Hostname: "one"})
	if err != nil {
		return Outcome{}, fmt.Errorf("about its own machine: %w", err)
	}
	if proto.Size(answer) > 0 {
		return breached("a report is answered with the machine"), nil
	}
	for _, mac := range []string{other, "52:54:00:aa:00:03"} {
		if _, err := nodes.ReportNode(ctx, &baremetalv1.ReportNodeRequest{MacAddress: mac}); !harness.HasReason(err,
			"OUTSIDE_SELECTION") {
			return breached("it reports about %s: %v", mac, err), nil
		}
	}
	return held("it reports about its machine alone, and is answered with nothing"), nil
}
