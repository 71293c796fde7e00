package auth

import baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

// About is which machines a method is about, for callers whose roles are for some machines alone.
type About uint8

const (
	// AboutOther: not about machines one by one, or not held to a selection yet. Only a role on all machines opens it.
	AboutOther About = iota
	// AboutNothing: its answer has no data on machines. Any role opens it.
	AboutNothing
	// AboutNamed: about what its request names, and nothing else: machines, nodes, operations, runs, workflows.
	AboutNamed
	// AboutFilter: a list or a stream of work on the machines of the selections, whose handler keeps to them. Its filter
	// may name a machine, an operation or a run; then it is AboutNamed as well.
	AboutFilter
	// AboutSeveral: work on several machines, whose handler keeps to the selections.
	AboutSeveral
	// AboutList: a list or a stream of machines, whose handler keeps to the selections.
	AboutList
)

// AboutOf returns which machines a method of the client API is about, by its full gRPC name. The default is AboutOther,
// which callers with roles on some machines are refused.
func AboutOf(method string) About { return about[method] }

var about = func() map[string]About {
	all := map[string]About{}
	for kind, methods := range map[About][]string{
		AboutNothing: {
			baremetalv1.AccessService_GetCaller_FullMethodName,
			baremetalv1.AdminService_GetServerInfo_FullMethodName,
			baremetalv1.ViewService_SetView_FullMethodName,
			baremetalv1.ViewService_GetView_FullMethodName,
			baremetalv1.ViewService_ListViews_FullMethodName,
			baremetalv1.ViewService_DeleteView_FullMethodName,
		},
		AboutList: {
			baremetalv1.MachineService_ExplainMachines_FullMethodName,
			baremetalv1.MachineService_ListMachines_FullMethodName,
			baremetalv1.MachineService_MapMachines_FullMethodName,
			baremetalv1.MachineService_SearchMachines_FullMethodName,
			baremetalv1.MachineService_WatchMachines_FullMethodName,
			baremetalv1.NodeService_ListNodes_FullMethodName,
		},
		AboutSeveral: {
			baremetalv1.RolloutService_CreateSelection_FullMethodName,
			baremetalv1.RolloutService_GetSelection_FullMethodName,
			baremetalv1.RolloutService_PreviewRollout_FullMethodName,
			baremetalv1.RolloutService_CreateRollout_FullMethodName,
			baremetalv1.RolloutService_ApproveRollout_FullMethodName,
			baremetalv1.RolloutService_PauseRollout_FullMethodName,
			baremetalv1.RolloutService_ResumeRollout_FullMethodName,
			baremetalv1.RolloutService_CancelRollout_FullMethodName,
			baremetalv1.RolloutService_GetRollout_FullMethodName,
			baremetalv1.RolloutService_ListRollouts_FullMethodName,
			baremetalv1.RolloutService_ListRolloutMachines_FullMethodName,
			baremetalv1.RolloutService_WatchRollout_FullMethodName,
		},
		AboutFilter: {
			baremetalv1.OperationService_ListOperations_FullMethodName,
			baremetalv1.OperationService_WatchOperations_FullMethodName,
			baremetalv1.RunService_ListRuns_FullMethodName,
			baremetalv1.RunService_WatchRuns_FullMethodName,
			baremetalv1.WorkflowService_ListWorkflows_FullMethodName,
		},
		AboutNamed: {
			baremetalv1.MachineService_RegisterMachine_FullMethodName,
			baremetalv1.MachineService_GetMachine_FullMethodName,
			baremetalv1.MachineService_UpdateMachine_FullMethodName,
			baremetalv1.MachineService_DeleteMachine_FullMethodName,
			baremetalv1.MachineService_RebootMachine_FullMethodName,
			baremetalv1.MachineService_NetbootMachine_FullMethodName,
			baremetalv1.MachineService_ReimageMachine_FullMethodName,
			baremetalv1.MachineService_ReconfigureMachine_FullMethodName,
			baremetalv1.MachineService_TestMachine_FullMethodName,
			baremetalv1.MachineService_EnterMaintenance_FullMethodName,
			baremetalv1.MachineService_ExitMaintenance_FullMethodName,
			baremetalv1.MachineService_CancelOperation_FullMethodName,
			baremetalv1.MachineService_ExplainMachine_FullMethodName,
			baremetalv1.MachineService_GetMachineTimeline_FullMethodName,
			baremetalv1.MachineService_VerifyTimeline_FullMethodName,
			baremetalv1.MachineService_GetInventory_FullMethodName,
			baremetalv1.MachineService_GetHardwareTests_FullMethodName,
			baremetalv1.MachineService_GetHardwareHealth_FullMethodName,
			baremetalv1.MachineService_SetIdentifyLight_FullMethodName,
			baremetalv1.OperationService_GetOperation_FullMethodName,
			baremetalv1.OperationService_GetErasureCertificate_FullMethodName,
			baremetalv1.OperationService_StreamOperationLogs_FullMethodName,
			baremetalv1.RunService_StartRun_FullMethodName,
			baremetalv1.RunService_GetRun_FullMethodName,
			baremetalv1.RunService_CancelRun_FullMethodName,
			baremetalv1.RunService_StreamRunLogs_FullMethodName,
			baremetalv1.NodeService_GetNode_FullMethodName,
			baremetalv1.NodeService_GetNodeHistory_FullMethodName,
			baremetalv1.NodeService_UpdateNode_FullMethodName,
			baremetalv1.NodeService_ReportNode_FullMethodName,
			baremetalv1.NodeService_TransitionNode_FullMethodName,
			baremetalv1.WorkflowService_StartWorkflow_FullMethodName,
			baremetalv1.WorkflowService_GetWorkflow_FullMethodName,
			baremetalv1.WorkflowService_ActOnWorkflow_FullMethodName,
			baremetalv1.AdminService_ListCommands_FullMethodName,
			baremetalv1.AdminService_SettleCommand_FullMethodName,
			baremetalv1.AdminService_ClearIntervention_FullMethodName,
			baremetalv1.AdminService_SetMachineFlag_FullMethodName,
			baremetalv1.AdminService_ForgetTPM_FullMethodName,
			baremetalv1.AdminService_ListBMCCertificates_FullMethodName,
			baremetalv1.AdminService_TrustBMCCertificate_FullMethodName,
			baremetalv1.AdminService_UnparkBMC_FullMethodName,
		},
	} {
		for _, m := range methods {
			all[m] = kind
		}
	}
	return all
}()
