package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/harness"
)

// provider is go-oidc's own test server: it issues tokens for any identity of this test. lab/signon has people sign on
// with a complete provider.
type provider struct {
	listener net.Listener
	key      *ecdsa.PrivateKey
	serve    sync.Once
}

var theProvider = sync.OnceValue(func() *provider {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &provider{listener: l, key: key}
})

func (p *provider) issuer() string { return "http://" + p.listener.Addr().String() }

func (p *provider) config() string {
	return fmt.Sprintf("sign_on: {issuer: %q, client_id: console}\n", p.issuer())
}

func (p *provider) start() {
	p.serve.Do(func() {
		s := &oidctest.Server{Algorithms: []string{oidc.ES256},
			PublicKeys: []oidctest.PublicKey{{PublicKey: p.key.Public(), KeyID: "k", Algorithm: oidc.ES256}}}
		s.SetIssuer(p.issuer())
		task.Background("provider", func() { _ = http.Serve(p.listener, s) }) //nolint:gosec // G114: ends with the test
	})
}

// claims of Eve, who is in group team, for an audience.
func (p *provider) claims(audience string) string {
	now := time.Now()
	return fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"eve","preferred_username":"eve","groups":["team"],"iat":%d,"exp":%d}`,
		p.issuer(), audience, now.Unix(), now.Add(time.Hour).Unix())
}

func (p *provider) token() string {
	return oidctest.SignIDToken(p.key, "k", oidc.ES256, p.claims("console"))
}

// refusedSelection are the reasons for which a person with roles on some machines is refused.
func refusedSelection(err error) bool {
	return harness.HasReason(err, "OUTSIDE_SELECTION") || harness.HasReason(err, "SELECTION_TOO_NARROW") ||
		harness.HasReason(err, access.ReasonScopeTooSmall)
}

// outsideRole: Eve is an operator of the machines of one site. She calls everything about a machine of another one,
// with her token and with others that she makes up.
func outsideRole(ctx context.Context, r *Rig) (Outcome, error) {
	p := theProvider()
	p.start()
	roles := baremetalv1.NewAccessServiceClient(r.C.Conn())
	const inside, outside = "m-eves-own", "m-not-eves"
	for id, site := range map[string]string{inside: "here", outside: "there"} {
		r.C.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Site: site}})
	}
	op, err := r.C.Machines().EnterMaintenance(ctx,
		&baremetalv1.EnterMaintenanceRequest{MachineId: outside, RequestId: "1"})
	if err != nil {
		return Outcome{}, err
	}
	binding, err := roles.CreateRoleBinding(ctx, &baremetalv1.CreateRoleBindingRequest{
		Binding: &baremetalv1.RoleBinding{Role: "operator", Group: "team", Selection: "site=here"}})
	if err != nil {
		return Outcome{}, err
	}
	eve := r.C.WithToken(p.token())
	own := func() error {
		_, err := eve.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: inside})
		return err
	}
	for err = own(); err != nil && ctx.Err() == nil; err = own() { // until the controller knows the new role
		select {
		case <-ctx.Done():
			return Outcome{}, fmt.Errorf("her own machine: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	values := map[string]string{"machine_id": outside, "node_id": outside, "operation_id": op.GetOperationId(),
		"run_id": op.GetOperationId(), "request_id": "2", "filter": "machine_id=" + outside}
	methods := methodsOf(
		auth.NeedRead,
		auth.NeedCaller,
		auth.NeedOwn,
		auth.NeedOperate,
		auth.NeedReport,
		auth.NeedApprove,
		auth.NeedAdmin,
	)
	refused := 0
	for _, method := range methods {
		in, err := filled(method, values)
		if err != nil {
			return Outcome{}, err
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		leak := false
		err = call(once, eve, method, in, func(m proto.Message) {
			if f := m.ProtoReflect().Descriptor().Fields().ByName("filter"); f != nil {
				m.ProtoReflect().Clear(f) // the attacker's own words, sent back
			}
			wire, err := proto.Marshal(m)
			leak = leak || err == nil && bytes.Contains(wire, []byte(outside))
		})
		cancel()
		switch {
		case leak:
			return breached("%s shows a machine of another site", method), nil
		case refusedSelection(err):
			refused++
		case auth.AboutOf(method) == auth.AboutOther || auth.AboutOf(method) == auth.AboutNamed:
			return breached("%s about a machine of another site: %v", method, err), nil
		}
	}
	if err := p.forged(ctx, r, outside); err != nil {
		return breached("%v", err), nil
	}
	if _, err := roles.DeleteRoleBinding(ctx,
		&baremetalv1.DeleteRoleBindingRequest{BindingId: binding.GetBindingId()}); err != nil {
		return Outcome{}, err
	}
	deadline := time.Now().Add(2 * time.Second)
	for {
		_, err := eve.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: inside})
		if harness.HasReason(err, access.ReasonNoRole) {
			break
		}
		if time.Now().After(deadline) {
			return breached("a role that was taken away counts for more than 2 s: %v", err), nil
		}
		hold(ctx, 50*time.Millisecond)
	}
	return held("%d of %d methods refused, the others show nothing of it; tokens made up count for nothing", refused,
		len(methods)), nil
}

// forged tries tokens that were not issued to her.
func (p *provider) forged(ctx context.Context, r *Rig, machine string) error {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	encode := base64.RawURLEncoding.EncodeToString
	for name, token := range map[string]string{
		"signed by herself":   oidctest.SignIDToken(own, "k", oidc.ES256, p.claims("console")),
		"of a key of her own": oidctest.SignIDToken(own, "mine", oidc.ES256, p.claims("console")),
		"for another client":  oidctest.SignIDToken(p.key, "k", oidc.ES256, p.claims("shop")),
		"without signature":   encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(p.claims("console"))) + ".",
	} {
		_, err := r.C.WithToken(token).Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: machine})
		if !harness.HasReason(err, auth.ReasonBearerInvalid) {
			return errors.Join(fmt.Errorf("a token %s counts", name), err)
		}
	}
	return nil
}
