package invariants

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	// gRPC's own services, which the frontpage serves too.
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
)

// listenerOf maps each proto package to its listener: one listener per level of trust.
var listenerOf = map[protoreflect.FullName]auth.Listener{
	"baremetal.v1":            auth.Frontpage,
	"grpc.health.v1":          auth.Frontpage,
	"grpc.reflection.v1":      auth.Frontpage,
	"grpc.reflection.v1alpha": auth.Frontpage,
	"fleet.v1":                auth.Fleet,
	"enroll.v1":               auth.Enrolment,
}

func TestEveryMethodHasOneAuthorizationRule(t *testing.T) {
	table := auth.Table()
	described := map[string]bool{}
	for pkg, listener := range listenerOf {
		for name, method := range methodsOf(t, pkg) {
			full := "/" + name
			described[full] = true
			rule, ok := table[full]
			switch {
			case !ok:
				t.Errorf("%s has no authorization rule", full)
			case rule.Listener != listener:
				t.Errorf("%s is ruled for listener %s, want %s", full, rule.Listener, listener)
			default:
				if why := wrongNeed(pkg, method, rule.Need); why != "" {
					t.Errorf("%s: %s", full, why)
				}
			}
		}
	}
	for full := range table {
		if !described[full] {
			t.Errorf("the authorization table has %s, which no service has", full)
		}
	}
}

// wrongNeed holds the smallest need that a method may have by what it is.
func wrongNeed(pkg protoreflect.FullName, m protoreflect.MethodDescriptor, need auth.Need) string {
	switch {
	case pkg == "fleet.v1" && need != auth.NeedAgentCert:
		return "an agent's method that needs no agent's certificate"
	case pkg == "enroll.v1" && need != auth.NeedProof:
		return "an enrolment that needs no proof"
	case pkg != frontpage:
		return ""
	case m.FullName() == "baremetal.v1.AccessService.GetSignOn":
		return "" // who does not have a token yet asks how to get one
	case need.Scope() == 0:
		return "a method of the API that needs no bearer token"
	case m.Input().Fields().ByName("request_id") != nil && !need.Scope().Covers(access.ScopeOperate):
		return "starts work and needs less than scope operate"
	case m.Parent().Name() == "AdminService" && !reads(m.Name()) && need.Scope() != access.ScopeAdmin:
		return "administers and needs less than scope admin"
	case m.Parent().Name() == "AccessService" && m.Name() != "GetCaller" && need.Scope() != access.ScopeAdmin:
		return "is about the rights of others and needs less than scope admin"
	case m.Name() == "ReportNode" && need == auth.NeedReport:
		return "" // an installer's word, which its credential is for
	case m.Parent().Name() == "ViewService" && need == auth.NeedOwn:
		return "" // who may read saves what it reads
	case !reads(m.Name()) && !need.Scope().Covers(access.ScopeOperate):
		return "writes and needs less than scope operate"
	}
	return ""
}

func reads(name protoreflect.Name) bool {
	for _, verb := range []string{"Get", "List", "Count", "Watch", "Stream", "Explain", "Preview", "Map", "Search"} {
		if strings.HasPrefix(string(name), verb) {
			return true
		}
	}
	return false
}
