package view

import (
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
)

// Plans are the columns of `ingot plan list`.
func (s Style) Plans(p *pb.Plan) (cells, wide []Cell) {
	names := make([]string, 0, len(p.GetSteps()))
	for _, st := range p.GetSteps() {
		names = append(names, st.GetName())
	}
	return []Cell{
		{"PLAN_ID", p.GetPlanId()}, {"NAME", Clean(p.GetDisplayName())}, {"STEPS", strings.Join(names, " → ")},
		{"BUILT_IN", Mark(p.GetBuiltIn())}, {"USED", Mark(p.GetUsed())},
	}, nil
}

// Plan is the sheet of `ingot plan get`.
func (s Style) Plan(p *pb.Plan) string {
	f := &Fields{}
	f.Add("Plan", p.GetPlanId())
	f.Add("Name", Clean(p.GetDisplayName()))
	f.Add("BuiltIn", yesNo(p.GetBuiltIn()))
	f.Add("Used", yesNo(p.GetUsed()))
	f.Add("Created", Time(p.GetCreatedAt()))
	t := &Table{Header: []string{"STEP", "KIND", "TIMEOUT", "RETRIES"}}
	for _, st := range p.GetSteps() {
		t.Add(st.GetName(), stepKind(st), orDefault(st.GetTimeoutSeconds(), "s"), orDefault(st.GetMaxRetries(), ""))
	}
	return f.String() + "\n" + t.String()
}

// stepKind is the name of the member of the oneof that is set, as plan files write it.
func stepKind(st *pb.Step) string {
	m := st.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

func orDefault(n int32, unit string) string {
	switch {
	case n == 0:
		return "default"
	case n < 0:
		return "none"
	}
	return strconv.Itoa(int(n)) + unit
}

// RunFinished reports whether a run has reached its end.
func RunFinished(r *pb.Run) bool {
	switch r.GetPhase() {
	case pb.Run_SUCCEEDED, pb.Run_FAILED, pb.Run_CANCELED:
		return true
	}
	return false
}

func (s Style) runPhase(p pb.Run_Phase) string { return s.opPhase(pb.Operation_Phase(p)) }

// Runs are the columns of `ingot run list`.
func (s Style) Runs(r *pb.Run) (cells, wide []Cell) {
	return []Cell{
		{"RUN_ID", r.GetRunId()}, {"MACHINE_ID", r.GetMachineId()}, {"TYPE", r.GetType()}, {"PLAN", r.GetPlanId()},
		{"PHASE", s.runPhase(r.GetPhase())}, {"STEP", r.GetCurrentStep()}, {"AGE", Age(r.GetCreatedAt(), s.Now)},
	}, nil
}

// Run is the sheet of `ingot run get`, steps included.
func (s Style) Run(r *pb.Run) string {
	f := &Fields{}
	f.Add("Run", r.GetRunId())
	f.Add("Machine", r.GetMachineId())
	f.Add("Type", r.GetType())
	f.Add("Plan", r.GetPlanId())
	f.Add("Phase", s.runPhase(r.GetPhase()))
	f.Add("RequestId", r.GetRequestId())
	f.Add("WaitReason", r.GetWaitReason())
	f.Add("Params", Pairs(r.GetParams()))
	f.Add("Created", Time(r.GetCreatedAt()))
	f.Add("Duration", Between(r.GetCreatedAt(), r.GetFinishedAt()))
	if e := r.GetError(); e != nil {
		f.Add("Error", s.Bad(Clean(e.GetMessage())+" ("+e.GetCode()+")"))
	}
	t := &Table{Header: []string{"STEP", "KIND", "STATE", "RETRIES", "DURATION", "COMMAND_ID", "MESSAGE"}}
	for _, st := range r.GetSteps() {
		t.Add(st.GetName(), st.GetKind(), trimEnum(st.GetState().String(), "STATE_"), strconv.Itoa(int(st.GetRetryCount())),
			Between(st.GetStartedAt(), st.GetFinishedAt()), st.GetCommandId(), Clean(st.GetMessage()))
	}
	return f.String() + "\n" + t.String()
}

// RunLine is one line of `ingot run watch`.
func (s Style) RunLine(ev *pb.RunEvent) string {
	r := ev.GetSnapshot()
	line := "[" + times.Clock(ev.GetTs()) + "] " + pad(r.GetMachineId(), 10) + "  " + r.GetRunId() + "  " +
		pad(r.GetType(), 17) +
		"  " + pad(s.runPhase(r.GetPhase()), 9) + "  " + pad(r.GetCurrentStep(), 10) + "  " + Clean(ev.GetMessage())
	return trimRight(line) + "\n"
}

// Scripts are the columns of scripts.
func (s Style) Scripts(sc *pb.Script) (cells, wide []Cell) {
	destructive := "no"
	if sc.GetDestructive() {
		destructive = s.Warn("yes")
	}
	return []Cell{
		{"SCRIPT_REF", sc.GetScriptRef()}, {"SIZE", strconv.FormatInt(sc.GetSizeBytes(), 10)},
		{"INTERPRETER", Clean(sc.GetInterpreter())}, {"DESTRUCTIVE", destructive}, {"AGE", Age(sc.GetCreatedAt(), s.Now)},
		{"SHA256", sc.GetSha256()},
	}, nil
}

// SSHCredentials are the columns of SSH credentials.
func (s Style) SSHCredentials(c *pb.SSHCredentials) (cells, wide []Cell) {
	name := Clean(c.GetUsername())
	if name == "" {
		name = s.Warn("sealed with a lost key: set them again")
	}
	return []Cell{
		{"CREDENTIALS_REF", c.GetCredentialsRef()}, {"USERNAME", name}, {"VERSION", strconv.FormatInt(c.GetVersion(), 10)},
		{"UPDATED", Time(c.GetUpdatedAt())}, {"PUBLIC_KEY", Clean(c.GetPublicKey())},
	}, nil
}
