package view

import (
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
)

// Plans is the table of `ingot plan list`.
func (s Style) Plans(plans []*pb.Plan) *Table {
	t := &Table{Header: []string{"PLAN_ID", "NAME", "STEPS", "BUILT_IN", "USED"}}
	for _, p := range plans {
		names := make([]string, 0, len(p.GetSteps()))
		for _, st := range p.GetSteps() {
			names = append(names, st.GetName())
		}
		t.Add(p.GetPlanId(), Clean(p.GetDisplayName()), strings.Join(names, " → "), Mark(p.GetBuiltIn()), Mark(p.GetUsed()))
	}
	return t
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

// RunFinished says whether a run has reached its end.
func RunFinished(r *pb.Run) bool {
	switch r.GetPhase() {
	case pb.Run_SUCCEEDED, pb.Run_FAILED, pb.Run_CANCELED:
		return true
	}
	return false
}

func (s Style) runPhase(p pb.Run_Phase) string { return s.opPhase(pb.Operation_Phase(p)) }

// Runs is the table of `ingot run list`.
func (s Style) Runs(runs []*pb.Run, now time.Time) *Table {
	t := &Table{Header: []string{"RUN_ID", "MACHINE_ID", "TYPE", "PLAN", "PHASE", "STEP", "AGE"}}
	for _, r := range runs {
		t.Add(r.GetRunId(), r.GetMachineId(), r.GetType(), r.GetPlanId(), s.runPhase(r.GetPhase()), r.GetCurrentStep(),
			Age(r.GetCreatedAt(), now))
	}
	return t
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

// Scripts is the list of scripts.
func (s Style) Scripts(list []*pb.Script, now time.Time) *Table {
	t := &Table{Header: []string{"SCRIPT_REF", "SIZE", "INTERPRETER", "DESTRUCTIVE", "AGE", "SHA256"}}
	for _, sc := range list {
		destructive := "no"
		if sc.GetDestructive() {
			destructive = s.Warn("yes")
		}
		t.Add(sc.GetScriptRef(), strconv.FormatInt(sc.GetSizeBytes(), 10), Clean(sc.GetInterpreter()), destructive,
			Age(sc.GetCreatedAt(), now), sc.GetSha256())
	}
	return t
}

// SSHCredentials is the list of SSH credentials.
func (s Style) SSHCredentials(list []*pb.SSHCredentials) *Table {
	t := &Table{Header: []string{"CREDENTIALS_REF", "USERNAME", "VERSION", "UPDATED", "PUBLIC_KEY"}}
	for _, c := range list {
		name := Clean(c.GetUsername())
		if name == "" {
			name = s.Warn("sealed with a lost key: set them again")
		}
		t.Add(c.GetCredentialsRef(), name, strconv.FormatInt(c.GetVersion(), 10), Time(c.GetUpdatedAt()),
			Clean(c.GetPublicKey()))
	}
	return t
}
