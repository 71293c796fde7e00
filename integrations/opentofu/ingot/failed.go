package ingot

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// errorsPage is docs/reference/errors.md: what each reason of the API means, and the next step.
//
//go:embed errors.txt
var errorsPage string

// nextSteps are the last column of errorsPage by its first.
var nextSteps = readNextSteps(errorsPage)

func readNextSteps(page string) map[string]string {
	steps := map[string]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		name, ok := strings.CutPrefix(cells[0], "| `")
		if ok && len(cells) == 4 {
			steps[strings.TrimSuffix(name, "`")] = strings.TrimSuffix(cells[3], " |")
		}
	}
	return steps
}

// failed adds an error of the API to the diagnostics, with the next step. machineID may be empty. hints are what to do
// in the configuration.
func (c *controller) failed(
	ctx context.Context, diags *diag.Diagnostics, what, machineID string, err error, hints ...string,
) {
	diags.AddError(summary(what, err), detail(err, c.explained(ctx, machineID, err), hints...))
}

// explained asks why a machine is as it is, where the API has refused work on it, or the work has failed.
func (c *controller) explained(ctx context.Context, machineID string, err error) *baremetalv1.ExplainMachineResponse {
	if machineID == "" || reasonOf(err) == "" || client.Transient(err) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	why, err := c.machines.ExplainMachine(ctx, &baremetalv1.ExplainMachineRequest{MachineId: machineID})
	if err != nil {
		return nil // the first error is the one to show
	}
	return why
}

// reasonOf is the name of the API's reason, one that this program is too old to know included; empty without one.
func reasonOf(err error) string {
	var ended *client.OperationError
	if errors.As(err, &ended) {
		return ended.Operation.GetError().GetCode()
	}
	return client.Info(err).GetReason()
}

func summary(what string, err error) string {
	if reason := reasonOf(err); reason != "" {
		return what + ": " + reason
	}
	if code := status.Code(err); code != codes.Unknown && code != codes.OK {
		return what + ": " + code.String()
	}
	return what + ": failed"
}

func detail(err error, why *baremetalv1.ExplainMachineResponse, hints ...string) string {
	text := err.Error()
	if st, ok := status.FromError(err); ok && errors.Unwrap(err) == nil {
		text = st.Message()
	}
	var b strings.Builder
	b.WriteString(text)
	for _, v := range client.Violations(err) {
		fmt.Fprintf(&b, "\n%s: %s", v.GetField(), v.GetDescription())
	}
	if next := nextSteps[reasonOf(err)]; next != "" {
		fmt.Fprintf(&b, "\n\nNext step: %s", next)
	}
	for _, hint := range hints {
		if hint != "" {
			fmt.Fprintf(&b, "\n\n%s", hint)
		}
	}
	if why.GetSummary() != "" {
		fmt.Fprintf(&b, "\n\n%s: %s", why.GetMachineId(), why.GetSummary())
	}
	for i, action := range why.GetActions() {
		if i == mostActions {
			break
		}
		fmt.Fprintf(&b, "\n  %s (%s)", action.GetCommand(), action.GetConsequence())
	}
	return b.String()
}

// mostActions is how many of the possible actions are shown: the best come first.
const mostActions = 3

// gone reports whether what an error is about is not there, or not any more.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

// ended reports whether the error is the end of an operation, which stays.
func ended(err error) bool {
	var e *client.OperationError
	return errors.As(err, &e)
}

// errInService is returned when nothing was done to a machine in service.
var errInService = errors.New(
	"the machine is in service; nothing was done. Set take_out_of_service = true, or take it " +
		"into maintenance: ingot enter-maintenance MACHINE",
)

func orNone(s string) string {
	if s == "" {
		return "none that was verified"
	}
	return s
}
