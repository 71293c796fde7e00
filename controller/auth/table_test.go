package auth

import (
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// described is every method of every service of the files that each listener serves.
func described() map[string]Listener {
	out := map[string]Listener{}
	add := func(l Listener, files ...protoreflect.FileDescriptor) {
		for _, f := range files {
			for i := range f.Services().Len() {
				s := f.Services().Get(i)
				for j := range s.Methods().Len() {
					out["/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name())] = l
				}
			}
		}
	}
	add(Frontpage, baremetalv1.File_baremetal_v1_machine_proto, baremetalv1.File_baremetal_v1_operation_proto,
		baremetalv1.File_baremetal_v1_plan_proto, baremetalv1.File_baremetal_v1_run_proto,
		baremetalv1.File_baremetal_v1_node_proto, baremetalv1.File_baremetal_v1_workflow_proto,
		baremetalv1.File_baremetal_v1_admin_proto, baremetalv1.File_baremetal_v1_script_proto,
		baremetalv1.File_baremetal_v1_cluster_proto, baremetalv1.File_baremetal_v1_maas_proto,
		baremetalv1.File_baremetal_v1_budget_proto, baremetalv1.File_baremetal_v1_rollout_proto,
		baremetalv1.File_baremetal_v1_access_proto, baremetalv1.File_baremetal_v1_authority_proto,
		baremetalv1.File_baremetal_v1_view_proto,
		grpc_health_v1.File_grpc_health_v1_health_proto,
		grpc_reflection_v1.File_grpc_reflection_v1_reflection_proto,
		grpc_reflection_v1alpha.File_grpc_reflection_v1alpha_reflection_proto)
	add(Fleet, fleetv1.File_fleet_v1_fleet_proto)
	add(Enrolment, enrollv1.File_enroll_v1_enroll_proto)
	return out
}

func TestTableMatchesTheDescriptors(t *testing.T) {
	table, methods := Table(), described()
	for m, l := range methods {
		if rule, ok := table[m]; !ok || rule.Listener != l || rule.Need == 0 {
			t.Errorf("%s of %s: %+v", m, l, rule)
		}
	}
	for m := range table {
		if _, ok := methods[m]; !ok {
			t.Errorf("%s is in the table only", m)
		}
	}
}

// TestNoMethodIsListedTwice: a second entry would silently replace the first.
func TestNoMethodIsListedTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range [][]string{readMethods, operateMethods, adminMethods} {
		for _, m := range list {
			if seen[m] {
				t.Errorf("%s", m)
			}
			seen[m] = true
		}
	}
}

func TestNamesAgreeWithNeeds(t *testing.T) {
	for m, rule := range Table() {
		// It compares the audit log, which is for admins.
		if m == baremetalv1.MachineService_VerifyTimeline_FullMethodName && rule.Need == NeedAdmin {
			continue
		}
		if rule.Listener != Frontpage || strings.Contains(m, "AdminService") || strings.Contains(m, "ScriptService") ||
			strings.Contains(m, "ClusterService") || strings.Contains(m, "MAASService") ||
			strings.Contains(m, "BudgetService") || strings.Contains(m, "AccessService") ||
			strings.Contains(m, "AuthorityService") || strings.HasPrefix(m, "/grpc.") {
			continue
		}
		// An installer's credential is good for one call.
		if m == baremetalv1.NodeService_ReportNode_FullMethodName && rule.Need == NeedReport {
			continue
		}
		// The second person is an admin or an approver.
		if m == baremetalv1.RolloutService_ApproveRollout_FullMethodName && rule.Need == NeedApprove {
			continue
		}
		// What demands approval of operators is an admin's to say.
		if strings.HasSuffix(m, "ApprovalPolicy") && rule.Need == NeedAdmin {
			continue
		}
		// Who may read keeps views of its own.
		if strings.Contains(m, "ViewService") && rule.Need == NeedOwn {
			continue
		}
		name := m[strings.LastIndexByte(m, '/')+1:]
		reads := false
		for _, prefix := range []string{"Get", "List", "Watch", "Stream", "Explain", "Preview", "Count", "Map",
			"Search"} {
			reads = reads || strings.HasPrefix(name, prefix)
		}
		if reads != (rule.Need == NeedRead) || !reads && rule.Need != NeedOperate {
			t.Errorf("%s needs %d", m, rule.Need)
		}
	}
}
