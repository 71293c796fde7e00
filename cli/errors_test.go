package cli

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestExitCodesOfServerErrors(t *testing.T) {
	cases := []struct {
		err  error
		code int
	}{
		{refuse(codes.InvalidArgument, pb.Reason_INVALID_FILTER, "bad filter", nil), 2},
		{refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "no machine", nil), 3},
		{refuse(codes.FailedPrecondition, pb.Reason_WRONG_PHASE, "wrong phase", nil), 4},
		{refuse(codes.AlreadyExists, pb.Reason_REQUEST_ID_REUSED, "reused", nil), 4},
		{refuse(codes.Unauthenticated, pb.Reason_BEARER_INVALID, "who?", nil), 7},
		{refuse(codes.PermissionDenied, pb.Reason_SCOPE_TOO_SMALL, "no", nil), 7},
		{refuse(codes.Unavailable, pb.Reason_DATABASE_UNAVAILABLE, "no database", nil), 8},
		{status.Error(codes.ResourceExhausted, "message too large"), 8},
		{refuse(codes.Unimplemented, pb.Reason_EXPLAIN_NOT_WIRED, "not yet", nil), 10},
		{refuse(codes.Internal, pb.Reason_INTERNAL, "oops", nil), 1},
	}
	for _, c := range cases {
		f := fleet()
		f.fail = map[string]error{"GetMachine": c.err}
		got := f.run(t, "machine", "get", "machine-1", "--retry-for", "0s")
		if got.code != c.code || !strings.HasPrefix(got.err, "error: "+status.Convert(c.err).Message()+" (") {
			t.Errorf("%v: exit code %d, want %d; stderr %q", c.err, got.code, c.code, got.err)
		}
	}
}

func TestErrorNamesReasonFieldsAndNextStep(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.fail = map[string]error{"ReimageMachine": refuse(codes.FailedPrecondition, pb.Reason_COMMAND_UNRESOLVED,
		"a command is unresolved",
		map[string]string{"command_id": "cmd-7"})}
	got := f.run(t, "reimage", "machine-1", "--request-id", "r")
	want := "error: a command is unresolved (COMMAND_UNRESOLVED)\n" +
		"hint: look at the machine, then: ingot settle machine-1 cmd-7 --verdict happened|did-not-happen " +
		"--comment \"how you know\"\n"
	if got.err != want || got.code != 4 {
		t.Errorf("got %q, want %q", got.err, want)
	}

	f.fail["ReimageMachine"] = refuse(codes.InvalidArgument, pb.Reason_INVALID_FIELD, "bad request", nil,
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "image_ref",
			Description: "too long"}}})
	if got := f.run(t, "reimage", "machine-1"); !strings.Contains(got.err, "  image_ref: too long\n") || got.code != 2 {
		t.Errorf("field at fault: %+v", got)
	}
}

func TestUnimplementedIsExplained(t *testing.T) {
	f := fleet()
	f.fail = map[string]error{"ExplainMachine": refuse(codes.Unimplemented, pb.Reason_EXPLAIN_NOT_WIRED,
		"machines are not explained yet", nil)}
	got := f.run(t, "why", "machine-1")
	want := "error: machines are not explained yet (EXPLAIN_NOT_WIRED)\n" +
		"hint: until it can: ingot machine get machine-1 and ingot ops --machine machine-1\n"
	if got.code != 10 || got.err != want {
		t.Errorf("%+v", got)
	}
	f.fail["GetMachineTimeline"] = status.Error(codes.Unimplemented, "what?")
	if got := f.run(t, "timeline", "machine-1"); got.code != 10 || !strings.Contains(got.err, "(UNIMPLEMENTED)") {
		t.Errorf("without a reason: %+v", got)
	}
}

func TestServerOfAnErrorCannotSteerTheTerminal(t *testing.T) {
	f := fleet()
	f.fail = map[string]error{"GetMachine": refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "gone\x1b[2J", nil)}
	if got := f.run(t, "machine", "get", "x"); strings.Contains(got.err, "\x1b") {
		t.Errorf("escape sequence in %q", got.err)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"reboot"}, {"nonsense"}, {"list", "--no-such-flag"}, {"settle", "m-1", "cmd-1"},
		{"settle", "m-1", "cmd-1", "--verdict", "happened"},
		{"settle", "m-1", "cmd-1", "--verdict", "happened", "--comment", " "},
		{"settle", "m-1", "cmd-1", "--verdict", "perhaps"}, {"import", "zero"}, {"import"}, {"commands"},
		{"flag", "m-1", "Broken"}, {"reconfigure", "m-1"}, {"token", "issue", "m-1", "--role", "king"},
		{"reboot", "m-1", "--step-timeout", "10ms"}, {"list", "--timeout", "-1s"},
	} {
		if got := fleet().run(t, args...); got.code != 1 || !strings.HasPrefix(got.err, "error: ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestExitCodesAreDocumented(t *testing.T) {
	got := fleet().run(t, "help", "exit-codes")
	for _, line := range []string{"    0  ", "    1  ", "    2  ", "    3  ", "    4  ", "    5  ", "    6  ", "    7  ",
		"    8  ", "    9  ", "   10  "} {
		if !strings.Contains(got.out, line) {
			t.Errorf("exit code %q is not documented in:\n%s", line, got.out)
		}
	}
}

// TestAnUpdateMeetsAnother: an update that loses to another one is repeated twice, and then fails with exit code 4.
func TestAnUpdateMeetsAnother(t *testing.T) {
	for conflicts, code := range map[int]int{2: 0, 3: 4} {
		f := fleet()
		f.conflicts = conflicts
		got := f.run(t, "machine", "update", "machine-1", "--rack", "r9")
		if got.code != code || len(f.sent) != 3 {
			t.Errorf("%d conflicts: exit code %d, want %d; %d updates, want 3", conflicts, got.code, code, len(f.sent))
		}
	}
}
