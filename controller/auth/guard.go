package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/pki"
)

// GuardConfig is the listener to guard, and its tokens.
type GuardConfig struct {
	Listener Listener
	// Tokens are needed on the frontpage.
	Tokens *Tokens
	// CheckAgent, if set, has the last word on a verified client certificate: whether it is known and not revoked.
	CheckAgent func(ctx context.Context, agentID string, cert *x509.Certificate) error
}

// Guard lets calls in or refuses them, by Table. Put it behind failure.Interceptor, which turns its errors into
// statuses.
type Guard struct {
	cfg   GuardConfig
	table map[string]Rule
}

// NewGuard makes the guard of one listener.
func NewGuard(cfg GuardConfig) *Guard { return &Guard{cfg: cfg, table: Table()} }

// Unary guards unary calls.
func (g *Guard) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		need, err := g.need(info.FullMethod)
		if err != nil {
			return nil, err
		}
		who, err := g.identify(ctx, need)
		if err != nil {
			return nil, err
		}
		if scope := need.Scope(); scope != 0 {
			if err := g.cfg.Tokens.meet(ctx, who.secret, true); err != nil {
				return nil, err
			}
			caller, err := g.cfg.Tokens.authenticate(who.secret, scope)
			caller.Address = who.address
			g.cfg.Tokens.saw(caller)
			if err != nil {
				g.refused(caller.Name, who.address, info.FullMethod, req, err)
				return nil, err
			}
			ctx = withCaller(ctx, caller)
			who.name = caller.Name
		}
		resp, err := next(who.enter(ctx), req)
		g.refused(who.name, who.address, info.FullMethod, req, err)
		return resp, err
	}
}

// refused counts a call that was refused for lack of rights, for the audit log. Unknown callers are counted by the
// metrics alone.
func (g *Guard) refused(actor, address, method string, req any, err error) {
	if err == nil || actor == "" || g.cfg.Tokens == nil || failure.From(err).Kind != failure.KindDenied {
		return
	}
	machine := ""
	if m, ok := req.(interface{ GetMachineId() string }); ok {
		if machine = m.GetMachineId(); len(machine) > maxMachine {
			machine = machine[:maxMachine]
		}
	}
	g.cfg.Tokens.refusals.count(actor, address, method, machine)
}

// maxMachine bounds an unchecked machine id in the audit log.
const maxMachine = 64

// PreAuthorize checks a call whose message has not been read yet. It refuses a call that needs a token and has no known
// one. Unary and Stream check an admitted call again. known reports whether it has one, even if it does not open the
// method.
func (g *Guard) PreAuthorize(ctx context.Context, method string) (known bool, err error) {
	need := g.table[method].Need.Scope()
	if need == 0 {
		return false, nil
	}
	secret, err := bearer(ctx)
	if err == nil {
		err = g.cfg.Tokens.meet(ctx, secret, false)
	}
	if errors.Is(err, ErrWouldWait) {
		return false, nil // it costs as much as a stranger's call does, and is looked at again
	}
	if err == nil {
		_, err = g.cfg.Tokens.authenticate(secret, need)
	}
	if err != nil && failure.From(err).Kind == failure.KindUnauthenticated {
		return false, err
	}
	return true, nil
}

// Stream guards streams. One that was let in by a bearer token ends when a reload takes the token away.
func (g *Guard) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx := ss.Context()
		need, err := g.need(info.FullMethod)
		if err != nil {
			return err
		}
		who, err := g.identify(ctx, need)
		if err != nil {
			return err
		}
		scope := need.Scope()
		if scope == 0 {
			err := next(srv, &guardedStream{ServerStream: ss, ctx: who.enter(ctx)})
			g.refused(who.name, who.address, info.FullMethod, nil, err)
			return err
		}
		if err := g.cfg.Tokens.meet(ctx, who.secret, true); err != nil {
			return err
		}
		ctx, caller, done, err := g.cfg.Tokens.admit(ctx, who.secret, scope)
		caller.Address = who.address
		g.cfg.Tokens.saw(caller)
		if err != nil {
			g.refused(caller.Name, who.address, info.FullMethod, nil, err)
			return err
		}
		defer done()
		ctx = who.enter(withCaller(ctx, caller))
		err = serveUntilCut(ctx, info.FullMethod, func() error {
			return next(srv, &guardedStream{ServerStream: ss, ctx: ctx})
		})
		g.refused(caller.Name, who.address, info.FullMethod, nil, err)
		return err
	}
}

// need looks the method up. One of another listener does not exist here.
func (g *Guard) need(method string) (Need, error) {
	rule, ok := g.table[method]
	if !ok {
		return 0, failure.Denied(access.ReasonScopeTooSmall, "no scope opens %s", method)
	}
	if rule.Listener != g.cfg.Listener {
		return 0, failure.Unimplemented("", "unknown method %s", method)
	}
	return rule.Need, nil
}

// identity is what a caller has shown, not yet compared with the tokens.
type identity struct {
	secret string
	agent  *Agent
	// name is the actor in the audit log, as far as it is known.
	name    string
	address string
}

func (g *Guard) identify(ctx context.Context, need Need) (identity, error) {
	switch {
	case need.Scope() != 0:
		secret, err := bearer(ctx)
		return identity{secret: secret, address: sourceAddress(ctx)}, err
	case need == NeedAgentCert:
		agent, err := g.agent(ctx)
		if err != nil {
			return identity{}, err
		}
		agent.Address = sourceAddress(ctx)
		return identity{agent: agent, name: agent.ID, address: agent.Address}, nil
	case need == NeedNothing || need == NeedProof:
		return identity{}, nil
	}
	return identity{}, failure.Denied(access.ReasonScopeTooSmall, "no scope opens this")
}

// enter returns the context for the handler: without the authorization metadata, with the agent.
func (i identity) enter(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, authorization)) > 0 { // an agent has none, and its context lives long
		md, _ := metadata.FromIncomingContext(ctx) // a copy
		md.Delete(authorization)
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	if i.agent != nil {
		obs.Annotate(ctx, slog.String("agent_id", i.agent.ID))
		ctx = WithAgent(ctx, *i.agent)
	}
	return ctx
}

func withCaller(ctx context.Context, c access.Caller) context.Context {
	obs.Annotate(ctx, slog.String("caller", c.Name))
	return call.WithCaller(ctx, c)
}

const authorization = "authorization"

// bearer reads "authorization: Bearer <token>" (RFC 6750, section 2.1; the scheme's case does not matter).
func bearer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, authorization)
	if len(values) == 0 {
		return "", failure.Unauthenticated(ReasonBearerMissing, "send the metadata authorization: Bearer <token>")
	}
	if len(values) > 1 {
		return "", failure.Unauthenticated(ReasonBearerInvalid, "the authorization metadata was sent %d times", len(values))
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", failure.Unauthenticated(ReasonBearerMissing,
			"the authorization metadata is not of the form Bearer <token>")
	}
	return strings.TrimSpace(secret), nil
}

// agent reads the identity out of the verified client certificate.
func (g *Guard) agent(ctx context.Context) (*Agent, error) {
	cert := clientCert(ctx)
	if cert == nil {
		return nil, failure.Unauthenticated(ReasonCertificateRequired, "a client certificate is required")
	}
	id, err := pki.AgentID(cert)
	if err != nil {
		return nil, failure.Unauthenticated(ReasonCertificateRequired, "the client certificate names no agent").Wrap(err)
	}
	if g.cfg.CheckAgent != nil {
		if err := g.cfg.CheckAgent(ctx, id, cert); err != nil {
			return nil, err
		}
	}
	return &Agent{ID: id, Cert: cert}, nil
}

// clientCert returns the leaf of a chain that the handshake has verified, and nothing else.
func clientCert(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// forwardedFor is what the REST listener puts the address of its client into, at the end.
const forwardedFor = "x-forwarded-for"

// sourceAddress is the IP address that a call came from. The REST listener calls from inside the process and names the
// client's address; only it is believed.
func sourceAddress(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if p.Addr.Network() == "pipe" {
		list := strings.Join(metadata.ValueFromIncomingContext(ctx, forwardedFor), ",")
		return strings.TrimSpace(list[strings.LastIndex(list, ",")+1:])
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return ""
	}
	return host
}
