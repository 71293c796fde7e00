package judge

import (
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// Site is the site whose agent is under test.
const Site = "dallas"

// siteProgram is the name of the site agent's program.
const siteProgram = "site"

// recovery is how long the consequences of a fault may be seen after its end: a program starts, connects and reports.
const recovery = 30 * time.Second

// quiets are the faults that silence their target.
var quiets = []string{"kill", "stop", "pause", "cut", "ended"}

// struck reports whether a fault that silences one of the targets lies between two moments, with its consequences.
func (j *judge) struck(from, to time.Duration, targets ...string) bool {
	return slices.ContainsFunc(j.Faults, func(f check.Fault) bool {
		what, _, _ := strings.Cut(f.Kind, "-")
		return f.Begin <= to && f.End+recovery >= from && slices.Contains(targets, f.Target) &&
			(slices.Contains(quiets, what) || f.Target == "postgres")
	})
}

// silenced reports whether a program may be silent at a moment because a fault struck it, or the connection to it.
func (j *judge) silenced(name string, at time.Duration) bool { return j.struck(at, at, name) }

// own are the programs whose faults are the system's own.
var own = []string{"controller-1", "controller-2", "postgres"}

// during returns when an operation was under way, since the beginning of the run.
func (j *judge) during(o *baremetalv1.Operation) (from, to time.Duration) {
	from = o.GetCreatedAt().AsTime().Sub(j.Header.Begun)
	if o.GetFinishedAt() == nil {
		return from, j.Header.At.Sub(j.Header.Begun)
	}
	return from, o.GetFinishedAt().AsTime().Sub(j.Header.Begun)
}

// executor returns the program of the agent of a command.
func (j *judge) executor(c *baremetalv1.Command) string { return j.Agents[c.GetExecutorAgentId()] }

// reaching returns the programs that can act on a machine: its own agent, or the site's.
func (j *judge) reaching(machine string) []string {
	var out []string
	for _, c := range j.Commands {
		if name := j.executor(c); c.GetMachineId() == machine && name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, m := range j.Machines {
		if m.GetMachineId() != machine {
			continue
		}
		if name := j.Agents[m.GetStatus().GetAgentId()]; name != "" {
			out = append(out, name)
		}
		if m.GetSpec().GetSite() == Site {
			out = append(out, siteProgram)
		}
	}
	return out
}
