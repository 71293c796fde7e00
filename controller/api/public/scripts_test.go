package public_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func adding(s *pb.Script, content string) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.scripts.AddScript(ctx, &pb.AddScriptRequest{Script: s, Content: []byte(content)}))
	}
}

func setting(q *pb.SetSSHCredentialsRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.scripts.SetSSHCredentials(ctx, q)) }
}

var badScripts = []badCall{
	{"no script", invalid, "INVALID_FIELD", "script", adding(nil, "x")},
	{"no name", invalid, "INVALID_FIELD", "script.script_ref", adding(&pb.Script{}, "x")},
	{"a path for a name", invalid, "INVALID_FIELD", "script.script_ref", adding(&pb.Script{ScriptRef: "../fix"}, "x")},
	{"no bytes", invalid, "INVALID_FIELD", "content", adding(&pb.Script{ScriptRef: "new"}, "")},
	{"more than a MiB", invalid, "INVALID_FIELD", "content",
		adding(&pb.Script{ScriptRef: "new"}, strings.Repeat("x", 1<<20+1))},
	{"an interpreter by its name", invalid, "INVALID_FIELD", "script.interpreter",
		adding(&pb.Script{ScriptRef: "new", Interpreter: "bash"}, "x")},
	{"an interpreter with arguments of a path", invalid, "INVALID_FIELD", "script.interpreter",
		adding(&pb.Script{ScriptRef: "new", Interpreter: "/bin/../bin/sh"}, "x")},
	{"no digest", invalid, "INVALID_FIELD", "script.sha256", adding(&pb.Script{ScriptRef: "new", Sha256: "F00D"}, "x")},
	{"another digest", invalid, "SCRIPT_DIGEST_MISMATCH", "script.sha256",
		adding(&pb.Script{ScriptRef: "new", Sha256: strings.Repeat("0", 64)}, "x")},
	{"other bytes under its name", exists, "SCRIPT_EXISTS", "script.script_ref",
		adding(&pb.Script{ScriptRef: "there"}, "other")},
	{"another interpreter under its name", exists, "SCRIPT_EXISTS", "script.script_ref",
		adding(&pb.Script{ScriptRef: "there", Interpreter: "/bin/bash"}, "echo\n")},
	{"destructive under its name", exists, "SCRIPT_EXISTS", "script.script_ref",
		adding(&pb.Script{ScriptRef: "there", Destructive: true}, "echo\n")},
	{"get none", invalid, "INVALID_FIELD", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.scripts.GetScript(ctx, &pb.GetScriptRequest{}))
	}},
	{"get unknown", notFound, "SCRIPT_NOT_FOUND", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.scripts.GetScript(ctx, &pb.GetScriptRequest{ScriptRef: "no"}))
	}},
	{"remove none", invalid, "INVALID_FIELD", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.scripts.RemoveScript(ctx, &pb.RemoveScriptRequest{}))
	}},
	{"remove unknown", notFound, "SCRIPT_NOT_FOUND", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.scripts.RemoveScript(ctx, &pb.RemoveScriptRequest{ScriptRef: "no"}))
	}},
	{"scripts by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.scripts.ListScripts(ctx, &pb.ListScriptsRequest{PageToken: "x"}))
	}},
	{"scripts by a bad size", invalid, "INVALID_FIELD", "page_size", func(ctx context.Context, r *rig) error {
		return only(r.scripts.ListScripts(ctx, &pb.ListScriptsRequest{PageSize: -1}))
	}},
	{"credentials without a name", invalid, "INVALID_FIELD", "credentials_ref",
		setting(&pb.SetSSHCredentialsRequest{Username: "root", PrivateKey: []byte("x")})},
	{"credentials without a user", invalid, "INVALID_FIELD", "username",
		setting(&pb.SetSSHCredentialsRequest{CredentialsRef: "rack"})},
	{"credentials of two users", invalid, "INVALID_FIELD", "username",
		setting(&pb.SetSSHCredentialsRequest{CredentialsRef: "rack", Username: "root\nadmin"})},
	{"credentials without a key", invalid, "INVALID_FIELD", "private_key",
		setting(&pb.SetSSHCredentialsRequest{CredentialsRef: "rack", Username: "root"})},
	{"no key", invalid, "INVALID_FIELD", "private_key",
		setting(&pb.SetSSHCredentialsRequest{CredentialsRef: "rack", Username: "root", PrivateKey: []byte("password")})},
	{"delete no credentials", invalid, "INVALID_FIELD", "credentials_ref", func(ctx context.Context, r *rig) error {
		return only(r.scripts.DeleteSSHCredentials(ctx, &pb.DeleteSSHCredentialsRequest{}))
	}},
	{"delete unknown credentials", notFound, "CREDENTIALS_NOT_FOUND", "credentials_ref",
		func(ctx context.Context, r *rig) error {
			return only(r.scripts.DeleteSSHCredentials(ctx, &pb.DeleteSSHCredentialsRequest{CredentialsRef: "no"}))
		}},
	{"credentials by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{PageToken: "x"}))
	}},
	{"credentials by a bad size", invalid, "INVALID_FIELD", "page_size", func(ctx context.Context, r *rig) error {
		return only(r.scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{PageSize: -1}))
	}},
}

// Every refusal has its code, its reason and its field, and leaves neither an entry nor bytes.
func TestBadScriptCalls(t *testing.T) {
	r := newRig(t)
	r.script("there", "echo\n")
	for _, c := range badScripts {
		t.Run(c.name, func(t *testing.T) { wants(t, c.call(t.Context(), r), c.kind, c.reason, c.field) })
	}
	all, err := r.scripts.ListScripts(t.Context(), &pb.ListScriptsRequest{})
	if err != nil || len(all.GetScripts()) != 1 {
		t.Errorf("%v %v", all, err)
	}
	keys, err := r.scripts.ListSSHCredentials(t.Context(), &pb.ListSSHCredentialsRequest{})
	if err != nil || len(keys.GetCredentials()) != 0 {
		t.Errorf("%v %v", keys, err)
	}
	if files, err := r.blobs.List(); err != nil || len(files) != 1 {
		t.Errorf("files %v %v", files, err)
	}
}

func (r *rig) script(ref, content string) *pb.Script {
	r.t.Helper()
	s, err := r.scripts.AddScript(r.t.Context(), &pb.AddScriptRequest{Script: &pb.Script{ScriptRef: ref},
		Content: []byte(content)})
	if err != nil {
		r.t.Fatalf("add script: %v", err)
	}
	return s
}

// TestScripts: added once however often, read back, listed, held while work needs them, and gone with their bytes.
func TestScripts(t *testing.T) {
	r := newRig(t)
	const content = "echo fixed\n"
	sum := sha256.Sum256([]byte(content))
	made := r.script("fix-1", content)
	if made.GetSha256() != hex.EncodeToString(sum[:]) || made.GetSizeBytes() != int64(len(content)) ||
		made.GetInterpreter() != "/bin/sh" || made.GetCreatedAt() == nil {
		t.Errorf("added %v", made)
	}
	if again := r.script("fix-1", content); !proto.Equal(again, made) {
		t.Errorf("a repeat is another: %v, was %v", again, made)
	}
	if got, err := r.scripts.GetScript(t.Context(), &pb.GetScriptRequest{ScriptRef: "fix-1"}); err != nil ||
		!proto.Equal(got, made) {
		t.Errorf("%v %v", got, err)
	}
	for _, ref := range []string{"a", "b", "c", "d"} {
		r.script(ref, content)
	}
	seen := ""
	walk(t, func(token string) (string, error) {
		got, err := r.scripts.ListScripts(t.Context(), &pb.ListScriptsRequest{PageSize: 2, PageToken: token})
		for _, s := range got.GetScripts() {
			seen += s.GetScriptRef() + " "
		}
		return got.GetNextPageToken(), err
	})
	if seen != "a b c d fix-1 " {
		t.Errorf("listed %s", seen)
	}
	op := r.running("fix-1")
	_, err := r.scripts.RemoveScript(t.Context(), &pb.RemoveScriptRequest{ScriptRef: "fix-1"})
	wants(t, err, precondition, "SCRIPT_IN_USE", "")
	if _, err := r.machines.CancelOperation(t.Context(), &pb.CancelOperationRequest{OperationId: op}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"fix-1", "a", "b", "c", "d"} {
		if !r.blobs.Has(made.GetSha256()) {
			t.Errorf("the bytes are gone while %s has them", ref)
		}
		if gone, err := r.scripts.RemoveScript(t.Context(), &pb.RemoveScriptRequest{ScriptRef: ref}); err != nil ||
			gone.GetScriptRef() != ref {
			t.Fatalf("%v %v", gone, err)
		}
	}
	if r.blobs.Has(made.GetSha256()) {
		t.Error("the bytes stay though nothing names them")
	}
	r.verbs("fix-1", "ADD_SCRIPT", "REMOVE_SCRIPT")
}

// running starts work that needs a script, and returns the operation.
func (r *rig) running(ref string) string {
	r.t.Helper()
	r.key("rack", "root", newKey(r.t))
	r.register(&pb.Machine{MachineId: "m-ssh", Spec: &pb.MachineSpec{
		SshEndpoint: "10.0.0.1:22", SshHostKeys: []string{"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		SshCredentialsRef: "rack",
	}})
	r.maintenance("m-ssh")
	_, err := r.plans.CreatePlan(r.t.Context(), &pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "p", Steps: []*pb.Step{{
		Name: "run", Kind: &pb.Step_Ssh{Ssh: &pb.SshCommand{Command: ref}},
	}}}})
	if err != nil {
		r.t.Fatal(err)
	}
	run, err := r.runs.StartRun(r.t.Context(), &pb.StartRunRequest{MachineId: "m-ssh", RequestId: "run", Type: "RUN_PLAN",
		PlanId: "p"})
	if err != nil {
		r.t.Fatal(err)
	}
	return run.GetRunId()
}
