//go:build clients

package clients

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/lab/harness"
)

// TestPythonClient runs the tests of integrations/python.
func TestPythonClient(t *testing.T) {
	s := start(t)
	out := t.TempDir()
	at := filepath.Join("..", "..", "..", "integrations", "python")
	if made, err := exec.Command(filepath.Join(at, "generate"), out).CombinedOutput(); err != nil {
		t.Fatalf("generate: %v: %s", err, made)
	}
	s.answers(t, at, []string{"PYTHONPATH=" + out}, "/usr/bin/python3", "tests/test_client.py")
}

// TestTypeScriptClient runs the tests of integrations/typescript.
func TestTypeScriptClient(t *testing.T) {
	s := start(t)
	rest := harness.NewRelay(t, "tcp", s.Addresses().REST)
	s.rest = rest
	s.answers(t, filepath.Join("..", "..", "..", "integrations", "typescript"),
		[]string{"INGOT_URL=https://" + rest.Address(), "NODE_EXTRA_CA_CERTS=" + s.CAFile()}, "npm", "test")
}

// TestTypeScriptPackage packs the client as for a registry, and has another program use it by its types and its code.
func TestTypeScriptPackage(t *testing.T) {
	at, err := filepath.Abs(filepath.Join("..", "..", "..", "integrations", "typescript"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var packed []struct {
		Filename string
		Files    []struct{ Path string }
	}
	out := ran(t, at, "npm", "pack", "--silent", "--json", "--ignore-scripts=false", "--pack-destination", dir)
	if err := json.Unmarshal([]byte(out[strings.Index(out, "["):]), &packed); err != nil || len(packed) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	var files []string
	for _, f := range packed[0].Files {
		files = append(files, f.Path)
	}
	want := []string{"LICENSE", "README.md", "package.json"}
	for _, name := range []string{"connect", "errors", "follow", "index", "schema"} {
		want = append(want, "build/src/"+name+".d.ts", "build/src/"+name+".js")
	}
	slices.Sort(files)
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Errorf("it has %v, want %v", files, want)
	}
	modules := filepath.Join(dir, "node_modules")
	if err := os.MkdirAll(filepath.Join(modules, "ingot-client"), 0o755); err != nil {
		t.Fatal(err)
	}
	ran(t, dir, "tar", "-xzf", packed[0].Filename, "-C", filepath.Join(modules, "ingot-client"), "--strip-components=1")
	for _, name := range []string{"openapi-fetch", "openapi-typescript-helpers", "@types"} {
		if err := os.Symlink(filepath.Join(at, "node_modules", name), filepath.Join(modules, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
	write(t, filepath.Join(dir, "use.ts"), blockOf(t, filepath.Join(at, "README.md"), "ts"))
	compiler := filepath.Join(at, "node_modules", ".bin", "tsc")
	ran(t, dir, compiler, "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node",
		"use.ts")
	ran(t, dir, "node", "--input-type=module", "-e",
		`import { connect } from 'ingot-client'; connect({ url: 'https://h', token: 't' })`)
}

// TestPythonPackage builds a wheel of the client, and imports it from there. All of it is typed.
func TestPythonPackage(t *testing.T) {
	at, err := filepath.Abs(filepath.Join("..", "..", "..", "integrations", "python"))
	if err != nil {
		t.Fatal(err)
	}
	out, dir := t.TempDir(), t.TempDir()
	ran(t, at, "./generate", out)
	name := ran(t, out, "/usr/bin/python3", "-c", `
import contextlib, sys
from setuptools import build_meta
with contextlib.redirect_stdout(sys.stderr):
    name = build_meta.build_wheel(sys.argv[1])
print(name, end="")`, dir)
	wheel := filepath.Join(dir, name)
	z, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	has := map[string]bool{}
	for _, f := range z.File {
		has[f.Name] = true
	}
	for _, want := range []string{"ingot/__init__.py", "ingot/py.typed", "ingot/errors_pb2.pyi", "baremetal/py.typed",
		"baremetal/v1/machine_pb2.py", "baremetal/v1/machine_pb2.pyi", "baremetal/v1/machine_pb2_grpc.pyi"} {
		if !has[want] {
			t.Errorf("the wheel has no %s", want)
		}
	}
	for name := range has {
		// A part without stubs is not typed, even beside py.typed.
		if stub := name + "i"; strings.HasSuffix(name, "_pb2.py") && !has[stub] {
			t.Errorf("the wheel has no %s", stub)
		}
	}
	ran(t, dir, "/usr/bin/env", "PYTHONPATH="+wheel, "/usr/bin/python3", "-c", `
import importlib.metadata, ingot, os
assert ingot.__file__.startswith(os.environ["PYTHONPATH"]), ingot.__file__
assert importlib.metadata.version("ingot-client")`)
}

// ran runs a program in a folder to its end, and returns its output.
func ran(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s%s", program, args, err, out, said.String())
	}
	return string(out)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// blockOf returns the first block of code of a page in a language.
func blockOf(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n```"+language+"\n")
	block, _, ok := strings.Cut(after, "\n```\n")
	if !ok {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return block
}

// stranger is the address of a server whose certificate no client has a root for.
func stranger(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// answers runs a program in a folder, and does what it asks for a line at a time.
func (s site) answers(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "INGOT_SERVER="+s.Front.Address(), "INGOT_CA_FILE="+s.CAFile(),
		"INGOT_TOKEN_FILE="+s.tokenFile, "INGOT_MACHINE="+s.machine, "INGOT_STRANGER="+stranger(t))...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var ask struct{ Ask string }
		switch {
		case json.Unmarshal(lines.Bytes(), &ask) != nil:
			t.Log(lines.Text())
			continue
		case ask.Ask == "restart":
			s.restart()
		default:
			t.Errorf("the program asks for %q", ask.Ask)
		}
		if _, err := fmt.Fprintln(in, "{}"); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", program, err)
	}
}
