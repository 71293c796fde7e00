package hardware

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// Tests is the sheet of `ingot machine tests`: for each test the findings of each part, and the next step.
func Tests(s view.Style, all *pb.HardwareTests) string {
	if len(all.GetTests()) == 0 {
		return "The hardware of " + all.GetMachineId() + " was never tested.\nNext: ingot test " + all.GetMachineId() + "\n"
	}
	var parts []string
	for _, t := range all.GetTests() {
		parts = append(parts, test(s, all.GetMachineId(), t))
	}
	return strings.Join(parts, "\n")
}

func test(s view.Style, machine string, t *pb.HardwareTest) string {
	f := &view.Fields{}
	f.Add("Machine", machine)
	f.Add("Model", words(t.GetModel()))
	f.Add("Tested", view.Time(t.GetFinishedAt()))
	f.Add("Operation", t.GetOperationId())
	if t.GetSimulated() {
		f.Add("Simulated", s.Warn("yes, this is not real hardware"))
	}
	f.Add("Result", verdict(s, t))
	table := &view.Table{Header: []string{"TEST", "PART", "RESULT", "VALUE", "NORM", "DETAIL"}}
	for _, r := range t.GetResults() {
		table.Add(
			words(r.GetTest()),
			words(cmp.Or(r.GetPart(), "all")),
			words(r.GetVerdict()),
			value(r.GetValue(), r.GetUnit()),
			norm(r),
			words(r.GetDetail()),
		)
	}
	out := f.String()
	if len(table.Rows) > 0 {
		out += "\n" + table.String()
	}
	for _, r := range t.GetResults() {
		if r.GetWarning() != "" {
			out += s.Warn("warning") + " " + words(r.GetTest(), r.GetPart()) + ": " + words(r.GetWarning()) + "\n"
		}
	}
	return out
}

func verdict(s view.Style, t *pb.HardwareTest) string {
	failed, warned := 0, 0
	for _, r := range t.GetResults() {
		if r.GetVerdict() == "failed" {
			failed++
		}
		if r.GetWarning() != "" {
			warned++
		}
	}
	switch {
	case !t.GetPassed():
		return s.Bad(fmt.Sprintf("failed: %d of %d results", failed, len(t.GetResults())))
	case warned > 0:
		return s.Warn(fmt.Sprintf("passed, with %d warnings", warned))
	}
	return s.Good("passed")
}

func value(v float64, unit string) string {
	if unit == "" {
		return ""
	}
	digits := 1
	if v >= 100 {
		digits = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', digits, 64), ".0") + " " + words(unit)
}

func norm(r *pb.HardwareTestResult) string {
	if r.GetNormMachines() == 0 {
		return ""
	}
	return value(r.GetNorm(), r.GetUnit())
}
