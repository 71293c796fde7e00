package catalog_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

func adding(s *pb.Script, content string) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Scripts.AddScript(ctx, &pb.AddScriptRequest{Script: s, Content: []byte(content)}))
	}
}

func setting(q *pb.SetSSHCredentialsRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Scripts.SetSSHCredentials(ctx, q)) }
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
		return only(r.Scripts.GetScript(ctx, &pb.GetScriptRequest{}))
	}},
	{"get unknown", notFound, "SCRIPT_NOT_FOUND", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.GetScript(ctx, &pb.GetScriptRequest{ScriptRef: "no"}))
	}},
	{"remove none", invalid, "INVALID_FIELD", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.RemoveScript(ctx, &pb.RemoveScriptRequest{}))
	}},
	{"remove unknown", notFound, "SCRIPT_NOT_FOUND", "script_ref", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.RemoveScript(ctx, &pb.RemoveScriptRequest{ScriptRef: "no"}))
	}},
	{"scripts by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.ListScripts(ctx, &pb.ListScriptsRequest{PageToken: "x"}))
	}},
	{"scripts by a bad size", invalid, "INVALID_FIELD", "page_size", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.ListScripts(ctx, &pb.ListScriptsRequest{PageSize: -1}))
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
		return only(r.Scripts.DeleteSSHCredentials(ctx, &pb.DeleteSSHCredentialsRequest{}))
	}},
	{"delete unknown credentials", notFound, "CREDENTIALS_NOT_FOUND", "credentials_ref",
		func(ctx context.Context, r *rig) error {
			return only(r.Scripts.DeleteSSHCredentials(ctx, &pb.DeleteSSHCredentialsRequest{CredentialsRef: "no"}))
		}},
	{"credentials by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{PageToken: "x"}))
	}},
	{"credentials by a bad size", invalid, "INVALID_FIELD", "page_size", func(ctx context.Context, r *rig) error {
		return only(r.Scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{PageSize: -1}))
	}},
}

// Every refusal has its code, its reason and its field, and leaves neither an entry nor bytes.
func TestBadScriptCalls(t *testing.T) {
	r := publictest.NewRig(t)
	script(r, "there", "echo\n")
	for _, c := range badScripts {
		t.Run(c.name, func(t *testing.T) { publictest.Wants(t, c.call(t.Context(), r), c.kind, c.reason, c.field) })
	}
	all, err := r.Scripts.ListScripts(t.Context(), &pb.ListScriptsRequest{})
	if err != nil || len(all.GetScripts()) != 1 {
		t.Errorf("%v %v", all, err)
	}
	keys, err := r.Scripts.ListSSHCredentials(t.Context(), &pb.ListSSHCredentialsRequest{})
	if err != nil || len(keys.GetCredentials()) != 0 {
		t.Errorf("%v %v", keys, err)
	}
	if files, err := r.Blobs.List(t.Context()); err != nil || len(files) != 1 {
		t.Errorf("files %v %v", files, err)
	}
}

func script(r *rig, ref, content string) *pb.Script {
	r.T.Helper()
	s, err := r.Scripts.AddScript(r.T.Context(), &pb.AddScriptRequest{Script: &pb.Script{ScriptRef: ref},
		Content: []byte(content)})
	if err != nil {
		r.T.Fatalf("add script: %v", err)
	}
	return s
}

// TestScripts: added once however often, read back, listed, held while work needs them, and gone with their bytes.
func TestScripts(t *testing.T) {
	r := publictest.NewRig(t)
	const content = "echo fixed\n"
	sum := sha256.Sum256([]byte(content))
	made := script(r, "fix-1", content)
	if made.GetSha256() != hex.EncodeToString(sum[:]) || made.GetSizeBytes() != int64(len(content)) ||
		made.GetInterpreter() != "/bin/sh" || made.GetCreatedAt() == nil {
		t.Errorf("added %v", made)
	}
	if again := script(r, "fix-1", content); !proto.Equal(again, made) {
		t.Errorf("a repeat is another: %v, was %v", again, made)
	}
	if got, err := r.Scripts.GetScript(t.Context(), &pb.GetScriptRequest{ScriptRef: "fix-1"}); err != nil ||
		!proto.Equal(got, made) {
		t.Errorf("%v %v", got, err)
	}
	for _, ref := range []string{"a", "b", "c", "d"} {
		script(r, ref, content)
	}
	seen := ""
	publictest.Walk(t, func(token string) (string, error) {
		got, err := r.Scripts.ListScripts(t.Context(), &pb.ListScriptsRequest{PageSize: 2, PageToken: token})
		for _, s := range got.GetScripts() {
			seen += s.GetScriptRef() + " "
		}
		return got.GetNextPageToken(), err
	})
	if seen != "a b c d fix-1 " {
		t.Errorf("listed %s", seen)
	}
	op := running(r, "fix-1")
	_, err := r.Scripts.RemoveScript(t.Context(), &pb.RemoveScriptRequest{ScriptRef: "fix-1"})
	publictest.Wants(t, err, precondition, "SCRIPT_IN_USE", "")
	if _, err := r.Machines.CancelOperation(t.Context(), &pb.CancelOperationRequest{OperationId: op}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"fix-1", "a", "b", "c", "d"} {
		if there, err := r.Blobs.Has(t.Context(), made.GetSha256()); err != nil || !there {
			t.Errorf("the bytes are gone while %s has them (%v)", ref, err)
		}
		if gone, err := r.Scripts.RemoveScript(t.Context(), &pb.RemoveScriptRequest{ScriptRef: ref}); err != nil ||
			gone.GetScriptRef() != ref {
			t.Fatalf("%v %v", gone, err)
		}
	}
	if there, err := r.Blobs.Has(t.Context(), made.GetSha256()); err != nil || there {
		t.Errorf("the bytes stay though nothing names them (%v)", err)
	}
	r.Verbs("fix-1", "ADD_SCRIPT", "REMOVE_SCRIPT")
}

// running starts work that needs a script, and returns the operation.
func running(r *rig, ref string) string {
	r.T.Helper()
	sshKey(r, "rack", "root", newKey(r.T))
	r.Register(&pb.Machine{MachineId: "m-ssh", Spec: &pb.MachineSpec{
		SshEndpoint: "10.0.0.1:22", SshHostKeys: []string{"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		SshCredentialsRef: "rack",
	}})
	r.Maintenance("m-ssh")
	_, err := r.Plans.CreatePlan(r.T.Context(), &pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "p", Steps: []*pb.Step{{
		Name: "run", Kind: &pb.Step_Ssh{Ssh: &pb.SshCommand{Command: ref}},
	}}}})
	if err != nil {
		r.T.Fatal(err)
	}
	run, err := r.Runs.StartRun(r.T.Context(), &pb.StartRunRequest{MachineId: "m-ssh", RequestId: "run", Type: "RUN_PLAN",
		PlanId: "p"})
	if err != nil {
		r.T.Fatal(err)
	}
	return run.GetRunId()
}
