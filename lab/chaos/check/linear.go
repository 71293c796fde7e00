package check

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// linearLimit bounds the search for one machine. A search without a result by then is no violation.
const linearLimit = 20 * time.Second

// answers compares the calls about each machine with a model of a machine that takes one at a time. A request id names
// the same operation for ever, one operation is active at a time, and an ended one stays ended. No call marks the end
// of an operation: it lies between the first call that could have started it and the first answer that shows it.
func (j *judge) answers() {
	ids := map[string]bool{}
	for _, o := range j.h.Operations {
		ids[o.GetMachineId()] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		ops := j.linear(id)
		if porcupine.CheckOperationsTimeout(model, ops, linearLimit) == porcupine.Illegal {
			j.add(RuleAnswers, id, "no order of these calls explains their answers: %s", describe(ops))
		}
	}
}

// input is a call, or the end of an operation (method ended).
type input struct {
	method             Method
	request, operation string
}

const ended Method = "ended"

// output is what the client saw; known is false when nothing came back.
type output struct {
	known             bool
	refused           string
	operation, active string
	over              bool
}

const forever = math.MaxInt64

// linear returns the calls about one machine, and the ends of its operations.
func (j *judge) linear(machine string) []porcupine.Operation {
	var out []porcupine.Operation
	byRequest, seenOver := map[string]string{}, map[string]int64{}
	for _, o := range j.h.Operations {
		if o.GetMachineId() == machine {
			byRequest[o.GetRequestId()] = o.GetOperationId()
		}
	}
	for i, c := range j.h.Calls {
		in, o, ok := translate(c, machine, byRequest)
		if !ok {
			continue
		}
		end := int64(c.End)
		if !o.known {
			end = forever
		}
		out = append(out, porcupine.Operation{ClientId: i, Input: in, Output: o, Call: int64(c.Begin), Return: end})
		if o.operation == "" {
			continue
		}
		if _, known := seenOver[o.operation]; !known {
			seenOver[o.operation] = forever
		}
		if o.over {
			seenOver[o.operation] = min(seenOver[o.operation], end)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seenOver)) {
		end := seenOver[id]
		out = append(out, porcupine.Operation{ClientId: len(j.h.Calls), Input: input{method: ended, operation: id},
			Output: output{known: true}, Return: end})
	}
	return out
}

// translate leaves out calls that say nothing: those about another machine, and those of unknown outcome whose effect,
// as the end of the run shows, never came.
func translate(c Call, machine string, byRequest map[string]string) (input, output, bool) {
	in := input{method: c.Method, request: c.Request, operation: c.Operation}
	o := output{known: c.Outcome != Unknown, operation: c.Operation, active: c.Active,
		over: phase(c.Phase) >= baremetalv1.Operation_SUCCEEDED}
	if c.Outcome == Refused {
		o.refused = c.Reason
		if o.refused == "" {
			o.refused = "?"
		}
	}
	if c.Machine != machine {
		return in, o, false
	}
	switch c.Method {
	case Start:
		in.operation = ""
		if !o.known {
			o.operation = byRequest[c.Request]
		}
		return in, o, o.known || o.operation != ""
	case Get, Cancel, GetMachine:
		return in, o, c.Outcome == OK || c.Outcome == Refused && c.Method == Cancel
	}
	return in, o, false
}

// state is one machine. It is compared with ==, so its sets are sorted lists in strings.
type state struct {
	active string
	known  string // "request=operation;" of each request that was taken
	over   string // "operation;" of each that has ended
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) { return step(s.(state), in.(input), out.(output)) },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v → %+v", in, out)
	},
}

func step(s state, in input, out output) (bool, any) {
	switch in.method {
	case Start:
		return s.start(in, out)
	case ended:
		if s.active == in.operation {
			s.active, s.over = "", insert(s.over, in.operation)
			return true, s
		}
		return has(s.over, in.operation), s
	case Get:
		return s.shows(in.operation, out.over), s
	case GetMachine:
		return s.active == out.active, s
	case Cancel:
		return s.cancel(in, out)
	}
	return true, s
}

func (s state) start(in input, out output) (bool, any) {
	known := value(s.known, in.request)
	switch {
	case out.refused == "MACHINE_BUSY":
		return known == "" && s.active != "", s
	case out.refused != "":
		return known == "", s
	case known != "":
		return known == out.operation && (!out.known || s.shows(known, out.over)), s
	case s.active != "" || has(s.over, out.operation):
		return false, s
	}
	s.known = insert(s.known, in.request+"="+out.operation)
	s.active = out.operation
	if out.known && out.over {
		s.active, s.over = "", insert(s.over, out.operation)
	}
	return true, s
}

func (s state) cancel(in input, out output) (bool, any) {
	switch {
	case out.refused == "CANCEL_TOO_LATE":
		return s.active == in.operation, s // nothing can stop it, and it has not ended
	case out.refused != "":
		return has(s.over, in.operation), s
	case has(s.over, in.operation):
		return true, s
	case s.active != in.operation:
		return false, s
	case out.over:
		s.active, s.over = "", insert(s.over, in.operation)
	}
	return true, s
}

// shows reports whether an answer about an operation fits.
func (s state) shows(operation string, over bool) bool {
	if over {
		return has(s.over, operation)
	}
	return s.active == operation
}

func insert(set, item string) string {
	list := append(strings.Split(strings.TrimSuffix(set, ";"), ";"), item)
	slices.Sort(list)
	return strings.TrimPrefix(strings.Join(list, ";"), ";") + ";"
}

func has(set, item string) bool { return strings.Contains(";"+set, ";"+item+";") }

func value(set, key string) string {
	for part := range strings.SplitSeq(set, ";") {
		if k, v, _ := strings.Cut(part, "="); k == key && k != "" {
			return v
		}
	}
	return ""
}

func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(time.Duration(a.Call - b.Call)) })
	var b strings.Builder
	for _, o := range ops {
		end := "…"
		if o.Return != forever {
			end = time.Duration(o.Return).Round(time.Millisecond).String()
		}
		fmt.Fprintf(&b, "\n    %v–%s %s", time.Duration(o.Call).Round(time.Millisecond), end,
			model.DescribeOperation(o.Input, o.Output))
	}
	return b.String()
}
