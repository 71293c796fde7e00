package traces

// Name is the work of a span. Where several kinds of it are distinguished, the kind follows it: "operation REBOOT".
type Name string

const (
	// Operation is an operation from its creation to its end. All other spans of the trace are below it.
	Operation Name = "operation"
	// Call is a client's call that has started, repeated or cancelled the operation, with its method.
	Call Name = "call"
	// Job is one evaluation of the operation by a job of River.
	Job Name = "job"
	// Transition is a decision that has changed the operation or a command, up to its commit; its events are the notes
	// that watchers see.
	Transition Name = "transition"
	// Command is a command, with its kind, from the moment it was sent until nothing more can come of it.
	Command Name = "command"
	// Dispatch is the way of a command to its agent, from the moment it was sent to its acknowledgement.
	Dispatch Name = "dispatch"
	// Agent is an agent's work on a command, with its kind, from its receipt until the result is durable.
	Agent Name = "agent"
	// Grant is an agent's wait for a grant.
	Grant Name = "grant"
	// Execute is the executor at work.
	Execute Name = "execute"
	// Resume is the executor's Resume, after a restart of the agent or a reboot of its machine.
	Resume Name = "resume"
)

// Attribute is the key of an attribute. There are no other keys than these.
type Attribute string

const (
	// OperationID is the operation.
	OperationID Attribute = "ingot.operation_id"
	// MachineID is the machine that the operation is for.
	MachineID Attribute = "ingot.machine_id"
	// OperationType is the operation's type, such as REBOOT.
	OperationType Attribute = "ingot.operation_type"
	// Phase is the operation's phase afterwards.
	Phase Attribute = "ingot.phase"
	// Stage is the operation's stage afterwards.
	Stage Attribute = "ingot.stage"
	// WaitReason is why nothing moves right now.
	WaitReason Attribute = "ingot.wait_reason"
	// Step is the step of the plan.
	Step Attribute = "ingot.step"
	// CommandID is the command.
	CommandID Attribute = "ingot.command_id"
	// CommandKind is what the command does, such as reboot.
	CommandKind Attribute = "ingot.command_kind"
	// CommandState is the command's state afterwards.
	CommandState Attribute = "ingot.command_state"
	// Outcome is how the operation, the command or the execution has ended.
	Outcome Attribute = "ingot.outcome"
	// Reason is why it did not succeed: a reason of the API.
	Reason Attribute = "ingot.reason"
	// Attempt counts the tries of the step, or of the job.
	Attempt Attribute = "ingot.attempt"
	// AgentID is the agent that executes.
	AgentID Attribute = "ingot.agent_id"
	// ControllerID is the controller process that has written the span.
	ControllerID Attribute = "ingot.controller_id"
	// RPCSystem is grpc.
	RPCSystem Attribute = "rpc.system"
	// RPCService is the service that was called.
	RPCService Attribute = "rpc.service"
	// RPCMethod is the method that was called.
	RPCMethod Attribute = "rpc.method"
	// RPCCode is the code of the answer, as a number.
	RPCCode Attribute = "rpc.grpc.status_code"
)
