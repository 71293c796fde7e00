package operation

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// EvidenceReportedBy names whoever carried the report of a finished installation. It is a claim: nothing was read back.
const EvidenceReportedBy = "reported_by"

// awaitReport waits for the next report; it never ends the step well.
func (d *decider) awaitReport(s *Step) bool {
	switch {
	case d.op.WaitReason != WaitInstaller:
		d.wait(WaitInstaller, d.now.Add(s.Timeout))
	case !d.now.Before(d.op.WakeAt):
		d.fail("INSTALLER_SILENT", fmt.Sprintf("the installer has not reported for %s", s.Timeout.Round(time.Second)), true)
	}
	return false
}

// reported takes a report.
func (d *decider) reported(e Reported) {
	s := d.step()
	if IsTerminal(d.op.Phase) || s.Mode != workflow.ReportedInstall || s.State != StepRunning {
		d.out.Refusal = &fleet.Refusal{Reason: "REPORT_REFUSED", Message: "operation " + d.op.ID +
			" decides by its own evidence"}
		return
	}
	switch {
	case e.Status == "complete":
		d.stepDone(map[string]string{EvidenceReportedBy: e.Actor})
		return
	case e.Status == "failed" && d.w.Install.last():
		d.fail("EXECUTION_FAILED", cmp.Or(e.Error, "the installer gave no message"), true)
		return
	case e.Status == "failed":
		d.out.AttemptFailed = cmp.Or(e.Error, "the installer gave no message")
		d.note("step_retrying", d.attemptText())
	}
	d.wait(WaitInstaller, d.now.Add(s.Timeout))
}
