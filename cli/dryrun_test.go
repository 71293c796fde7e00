package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// TestADryRunStartsNothing: no command keeps a selection under its request id, since the work would then be done on the
// machines of the dry run. On one machine it asks the call itself.
func TestADryRunStartsNothing(t *testing.T) {
	commands := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Flags().Lookup("validate-only") == nil {
			return
		}
		commands++
		path := c.CommandPath()
		for _, machines := range []string{"machine-1", "machine-[1-3]"} {
			line := strings.TrimPrefix(path, "ingot ") + " " + machines + " --dry-run --request-id r " + validating[path]
			f := threeMachines()
			f.run(t, strings.Fields(line)...)
			validated := 0
			for _, call := range f.asked {
				method, request, _ := strings.Cut(call, " ")
				method, request = method[strings.LastIndex(method, "/")+1:], strings.ReplaceAll(request, " ", "")
				if method == "CreateSelection" {
					t.Errorf("%s keeps a selection: %s", line, call)
				}
				for _, s := range starters {
					asks := strings.Contains(request, `"validate_only":true`) || strings.Contains(request, `"dry_run":true`)
					if method == s && !asks {
						t.Errorf("%s starts work: %s", line, call)
					} else if method == s {
						validated++
					}
				}
			}
			if alone := machines == "machine-1" && path != "ingot provision"; alone && validated != 1 {
				t.Errorf("%s asks the call %d times: %v", line, validated, f.asked)
			}
		}
	}
	walk(newRoot(&command.App{}))
	if commands < 10 {
		t.Errorf("%d commands take the flag", commands)
	}
}

// TestADryRunKnowsTheRequestID: what the same request has begun, and that it stands for other work. A host name fits
// one machine, and is no fault of its preview.
func TestADryRunKnowsTheRequestID(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	if got := f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "used", "--dry-run"); got.code != 4 ||
		!strings.Contains(got.err, "REQUEST_ID_REUSED") || got.out != "" {
		t.Errorf("other work: %+v", got)
	}
	f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "r-1")
	if got := f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "r-1", "--dry-run"); got.code != 0 ||
		!strings.Contains(got.err, "has begun "+f.op.GetOperationId()) {
		t.Errorf("the same again: %+v", got)
	}
	got := f.run(t, "reimage", "machine-1", "--image", "u", "--hostname", "web-1", "--dry-run")
	if got.code != 0 || !strings.Contains(got.out, "--hostname=web-1") {
		t.Errorf("a host name: %+v", got)
	}
	for _, call := range f.asked {
		if strings.Contains(call, "PreviewRollout") && strings.Contains(call, "web-1") {
			t.Errorf("the preview of several machines is asked with a host name: %s", call)
		}
	}
}
