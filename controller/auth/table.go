package auth

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
)

// Listener is one of the three gRPC listeners.
type Listener string

// The listeners.
const (
	Frontpage Listener = "frontpage"
	Fleet     Listener = "fleet"
	Enrolment Listener = "enrolment"
)

// Need is what a caller must show.
type Need uint8

// The needs. No caller meets the zero value.
const (
	_ Need = iota
	// NeedNothing: anybody who can connect.
	NeedNothing
	// NeedRead, NeedOperate and NeedAdmin: a bearer token of that scope or a larger one.
	NeedRead
	NeedOperate
	NeedAdmin
	// NeedOwn: as NeedRead, for what changes nothing but things of the caller's own; whose they are its handler looks at.
	NeedOwn
	// NeedReport: a bearer token of scope report, or one that may operate.
	NeedReport
	// NeedApprove: a bearer token of scope admin, or role approver or admin.
	NeedApprove
	// NeedCaller: a bearer token that may read, or any person who has signed on, with or without a role.
	NeedCaller
	// NeedAgentCert: a client certificate of our CA that names an agent.
	NeedAgentCert
	// NeedProof: the request itself carries a bootstrap token or a signature, which its handler checks.
	NeedProof
)

// Scope is the scope that a bearer token must cover; 0 where no token is asked for.
func (n Need) Scope() access.Scope {
	return map[Need]access.Scope{NeedRead: access.ScopeRead, NeedOwn: access.ScopeRead,
		NeedOperate: access.ScopeOperate, NeedAdmin: access.ScopeAdmin,
		NeedReport: access.ScopeReport, NeedApprove: access.ScopeApprove, NeedCaller: access.ScopeCaller}[n]
}

// Rule has the listener of a method and its need.
type Rule struct {
	Listener Listener
	Need     Need
}

// The methods of gRPC's own services; their packages export no constants for them.
const (
	healthCheck   = "/grpc.health.v1.Health/Check"
	healthWatch   = "/grpc.health.v1.Health/Watch"
	healthList    = "/grpc.health.v1.Health/List"
	reflectionV1  = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	reflectionV1a = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
)

// Table is every method of every listener, by its full name. Reflection is in it whether or not it is served.
func Table() map[string]Rule {
	t := map[string]Rule{}
	add := func(l Listener, n Need, methods ...string) {
		for _, m := range methods {
			t[m] = Rule{Listener: l, Need: n}
		}
	}
	add(Frontpage, NeedNothing, healthCheck, healthWatch, healthList)
	add(Frontpage, NeedRead, reflectionV1, reflectionV1a)
	add(Frontpage, NeedRead, readMethods...)
	add(Frontpage, NeedOwn, baremetalv1.ViewService_SetView_FullMethodName,
		baremetalv1.ViewService_DeleteView_FullMethodName)
	add(Frontpage, NeedOperate, operateMethods...)
	add(Frontpage, NeedAdmin, adminMethods...)
	add(Frontpage, NeedApprove, baremetalv1.RolloutService_ApproveRollout_FullMethodName)
	add(Frontpage, NeedNothing, baremetalv1.AccessService_GetSignOn_FullMethodName)
	add(Frontpage, NeedCaller, baremetalv1.AccessService_GetCaller_FullMethodName)
	add(Frontpage, NeedReport, baremetalv1.NodeService_ReportNode_FullMethodName)
	add(Fleet, NeedAgentCert,
		fleetv1.AgentService_Commands_FullMethodName,
		fleetv1.AgentService_Events_FullMethodName,
		fleetv1.AgentService_RotateAgentCert_FullMethodName,
		fleetv1.AgentService_SyncSite_FullMethodName,
		fleetv1.AgentService_GetBMCCredentials_FullMethodName,
		fleetv1.AgentService_MakeBMCPassword_FullMethodName,
		fleetv1.AgentService_SettleBMCPassword_FullMethodName,
		fleetv1.AgentService_GetSSHCredentials_FullMethodName,
		fleetv1.AgentService_GetClusterAccess_FullMethodName,
		fleetv1.AgentService_GetJoinMaterial_FullMethodName,
		fleetv1.AgentService_GetMAASRegion_FullMethodName,
		fleetv1.AgentService_VouchInstaller_FullMethodName,
		fleetv1.AgentService_IssueIdentity_FullMethodName,
		fleetv1.AgentService_FetchBlob_FullMethodName,
	)
	add(Enrolment, NeedProof,
		enrollv1.EnrollmentService_Enroll_FullMethodName,
		enrollv1.EnrollmentService_Reenroll_FullMethodName,
		enrollv1.EnrollmentService_ActivateCredential_FullMethodName,
	)
	return t
}

var readMethods = []string{
	baremetalv1.MachineService_GetMachine_FullMethodName,
	baremetalv1.MachineService_ListMachines_FullMethodName,
	baremetalv1.MachineService_CountMachines_FullMethodName,
	baremetalv1.MachineService_SearchMachines_FullMethodName,
	baremetalv1.MachineService_GetFleetSummary_FullMethodName,
	baremetalv1.MachineService_MapMachines_FullMethodName,
	baremetalv1.MachineService_WatchMachines_FullMethodName,
	baremetalv1.MachineService_ExplainMachine_FullMethodName,
	baremetalv1.MachineService_ExplainMachines_FullMethodName,
	baremetalv1.MachineService_GetMachineTimeline_FullMethodName,
	baremetalv1.MachineService_GetInventory_FullMethodName,
	baremetalv1.MachineService_GetHardwareTests_FullMethodName,
	baremetalv1.MachineService_GetHardwareHealth_FullMethodName,
	baremetalv1.OperationService_GetOperation_FullMethodName,
	baremetalv1.OperationService_GetErasureCertificate_FullMethodName,
	baremetalv1.OperationService_ListOperations_FullMethodName,
	baremetalv1.OperationService_WatchOperations_FullMethodName,
	baremetalv1.OperationService_StreamOperationLogs_FullMethodName,
	baremetalv1.PlanService_GetPlan_FullMethodName,
	baremetalv1.PlanService_ListPlans_FullMethodName,
	baremetalv1.RunService_GetRun_FullMethodName,
	baremetalv1.RunService_ListRuns_FullMethodName,
	baremetalv1.RunService_WatchRuns_FullMethodName,
	baremetalv1.RunService_StreamRunLogs_FullMethodName,
	baremetalv1.NodeService_ListNodes_FullMethodName,
	baremetalv1.NodeService_GetNode_FullMethodName,
	baremetalv1.NodeService_GetNodeHistory_FullMethodName,
	baremetalv1.NodeService_ListNodeGroups_FullMethodName,
	baremetalv1.WorkflowService_GetWorkflow_FullMethodName,
	baremetalv1.WorkflowService_ListWorkflows_FullMethodName,
	baremetalv1.AdminService_GetServerInfo_FullMethodName,
	baremetalv1.AuthorityService_GetAuthority_FullMethodName,
	baremetalv1.AdminService_ListAgents_FullMethodName,
	baremetalv1.AdminService_ListControllers_FullMethodName,
	baremetalv1.AdminService_GetAgent_FullMethodName,
	baremetalv1.AdminService_ListCommands_FullMethodName,
	baremetalv1.AdminService_GetImage_FullMethodName,
	baremetalv1.AdminService_ListImages_FullMethodName,
	baremetalv1.BudgetService_ListBudgets_FullMethodName,
	baremetalv1.BudgetService_ListBudgetSlots_FullMethodName,
	baremetalv1.RolloutService_PreviewRollout_FullMethodName,
	baremetalv1.RolloutService_GetRollout_FullMethodName,
	baremetalv1.RolloutService_ListRollouts_FullMethodName,
	baremetalv1.RolloutService_ListRolloutMachines_FullMethodName,
	baremetalv1.RolloutService_WatchRollout_FullMethodName,
	baremetalv1.RolloutService_GetSelection_FullMethodName,
	baremetalv1.RolloutService_ListApprovalPolicies_FullMethodName,
	baremetalv1.ScriptService_GetScript_FullMethodName,
	baremetalv1.ScriptService_ListScripts_FullMethodName,
	baremetalv1.ClusterService_GetCluster_FullMethodName,
	baremetalv1.ClusterService_ListClusters_FullMethodName,
	baremetalv1.AdminService_GetSite_FullMethodName,
	baremetalv1.AdminService_ListSites_FullMethodName,
	baremetalv1.AdminService_ListSiteLeases_FullMethodName,
	baremetalv1.AdminService_ListDiscovered_FullMethodName,
	baremetalv1.AdminService_ListBMCCertificates_FullMethodName,
	baremetalv1.ViewService_GetView_FullMethodName,
	baremetalv1.ViewService_ListViews_FullMethodName,
}

var operateMethods = []string{
	baremetalv1.MachineService_RegisterMachine_FullMethodName,
	baremetalv1.MachineService_UpdateMachine_FullMethodName,
	baremetalv1.MachineService_DeleteMachine_FullMethodName,
	baremetalv1.MachineService_RebootMachine_FullMethodName,
	baremetalv1.MachineService_NetbootMachine_FullMethodName,
	baremetalv1.MachineService_ReimageMachine_FullMethodName,
	baremetalv1.MachineService_ReconfigureMachine_FullMethodName,
	baremetalv1.MachineService_TestMachine_FullMethodName,
	baremetalv1.MachineService_SetIdentifyLight_FullMethodName,
	baremetalv1.MachineService_EnterMaintenance_FullMethodName,
	baremetalv1.MachineService_ExitMaintenance_FullMethodName,
	baremetalv1.MachineService_CancelOperation_FullMethodName,
	baremetalv1.PlanService_CreatePlan_FullMethodName,
	baremetalv1.PlanService_DeletePlan_FullMethodName,
	baremetalv1.RunService_StartRun_FullMethodName,
	baremetalv1.RunService_CancelRun_FullMethodName,
	baremetalv1.NodeService_UpdateNode_FullMethodName,
	baremetalv1.NodeService_TransitionNode_FullMethodName,
	baremetalv1.NodeService_ApproveDiscovered_FullMethodName,
	baremetalv1.NodeService_SetNodeGroup_FullMethodName,
	baremetalv1.WorkflowService_StartWorkflow_FullMethodName,
	baremetalv1.WorkflowService_ActOnWorkflow_FullMethodName,
	baremetalv1.RolloutService_CreateRollout_FullMethodName,
	baremetalv1.RolloutService_PauseRollout_FullMethodName,
	baremetalv1.RolloutService_ResumeRollout_FullMethodName,
	baremetalv1.RolloutService_CancelRollout_FullMethodName,
	baremetalv1.RolloutService_CreateSelection_FullMethodName,
}

var adminMethods = []string{
	baremetalv1.AuthorityService_RotateAuthority_FullMethodName,
	baremetalv1.AuthorityService_WithdrawAuthority_FullMethodName,
	baremetalv1.AdminService_IssueBootstrapToken_FullMethodName,
	baremetalv1.AdminService_ListBootstrapTokens_FullMethodName,
	baremetalv1.AdminService_RevokeBootstrapToken_FullMethodName,
	baremetalv1.AdminService_RevokeAgent_FullMethodName,
	baremetalv1.AdminService_SettleCommand_FullMethodName,
	baremetalv1.AdminService_ClearIntervention_FullMethodName,
	baremetalv1.AdminService_SetMachineFlag_FullMethodName,
	baremetalv1.AdminService_RequireIdentity_FullMethodName,
	baremetalv1.AdminService_ForgetTPM_FullMethodName,
	baremetalv1.AdminService_ThawFleet_FullMethodName,
	baremetalv1.AdminService_ListAuditLog_FullMethodName,
	baremetalv1.MachineService_VerifyTimeline_FullMethodName,
	baremetalv1.AdminService_GetHeadVerdicts_FullMethodName,
	baremetalv1.AdminService_ScrubAuditEventData_FullMethodName,
	baremetalv1.AdminService_AddImage_FullMethodName,
	baremetalv1.AdminService_UploadImage_FullMethodName,
	baremetalv1.AdminService_RemoveImage_FullMethodName,
	baremetalv1.AdminService_CreateWebhook_FullMethodName,
	baremetalv1.AdminService_ListWebhooks_FullMethodName,
	baremetalv1.AdminService_GetWebhook_FullMethodName,
	baremetalv1.AdminService_UpdateWebhook_FullMethodName,
	baremetalv1.AdminService_DeleteWebhook_FullMethodName,
	baremetalv1.AdminService_TestWebhook_FullMethodName,
	baremetalv1.AdminService_ListWebhookDeliveries_FullMethodName,
	baremetalv1.AdminService_RedeliverWebhook_FullMethodName,
	baremetalv1.AdminService_SetSite_FullMethodName,
	baremetalv1.AdminService_SetBMCCredentials_FullMethodName,
	baremetalv1.AdminService_ListBMCCredentials_FullMethodName,
	baremetalv1.AdminService_DeleteBMCCredentials_FullMethodName,
	baremetalv1.AdminService_TrustBMCCertificate_FullMethodName,
	baremetalv1.AdminService_UnparkBMC_FullMethodName,
	baremetalv1.AdminService_DiscoverBMCs_FullMethodName,
	baremetalv1.AdminService_CreateAPIToken_FullMethodName,
	baremetalv1.AdminService_ListAPITokens_FullMethodName,
	baremetalv1.AdminService_RevokeAPIToken_FullMethodName,
	baremetalv1.AccessService_CreateRoleBinding_FullMethodName,
	baremetalv1.AccessService_ListRoleBindings_FullMethodName,
	baremetalv1.AccessService_DeleteRoleBinding_FullMethodName,
	baremetalv1.AccessService_ListSessions_FullMethodName,
	baremetalv1.AccessService_RevokeSession_FullMethodName,
	baremetalv1.ClusterService_SetCluster_FullMethodName,
	baremetalv1.ClusterService_DeleteCluster_FullMethodName,
	baremetalv1.BudgetService_SetBudget_FullMethodName,
	baremetalv1.BudgetService_DeleteBudget_FullMethodName,
	baremetalv1.BudgetService_ReleaseBudgetSlot_FullMethodName,
	baremetalv1.BudgetService_FreezeFleet_FullMethodName,
	baremetalv1.RolloutService_SetApprovalPolicy_FullMethodName,
	baremetalv1.RolloutService_DeleteApprovalPolicy_FullMethodName,
	baremetalv1.ScriptService_AddScript_FullMethodName,
	baremetalv1.ScriptService_RemoveScript_FullMethodName,
	baremetalv1.ScriptService_SetSSHCredentials_FullMethodName,
	baremetalv1.ScriptService_ListSSHCredentials_FullMethodName,
	baremetalv1.ScriptService_DeleteSSHCredentials_FullMethodName,
	baremetalv1.MAASService_SetMAASRegion_FullMethodName,
	baremetalv1.MAASService_ListMAASRegions_FullMethodName,
	baremetalv1.MAASService_DeleteMAASRegion_FullMethodName,
}
