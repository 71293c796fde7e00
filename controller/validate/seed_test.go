package validate_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

const aKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBsGJVxh5G2c2Ks0W6bZ6tkZkHcRYW8bm7Yb8J1c0WfL me@box"

func TestSystemSeed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seed *baremetalv1.SystemSeed
		want string
	}{
		"nothing": {},
		"all": {seed: &baremetalv1.SystemSeed{Hostname: "r42-07.example.net", SshAuthorizedKeys: []string{aKey},
			UserData: "#cloud-config\npackages: [nginx]\n", NetworkConfig: "version: 2\nethernets: {}\n"}},
		"script":       {seed: &baremetalv1.SystemSeed{UserData: "#!/bin/sh\necho x\n"}},
		"empty config": {seed: &baremetalv1.SystemSeed{UserData: "#cloud-config\n"}},
		"MIME": {seed: &baremetalv1.SystemSeed{
			UserData: "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\n#!/bin/sh\n--x--\n"}},
		"MIME without a version": {&baremetalv1.SystemSeed{
			UserData: "Content-Type: multipart/mixed; boundary=x\n\n--x\n\n#!/bin/sh\n--x--\n"}, "MIME-Version"},
		"MIME without parts": {&baremetalv1.SystemSeed{
			UserData: "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\nx\n\n#!/bin/sh\n"}, "boundary"},
		"comment":    {seed: &baremetalv1.SystemSeed{UserData: "\n#Cloud-Config # of ops\npackages: []\n"}},
		"patch":      {seed: &baremetalv1.SystemSeed{UserData: "#cloud-config-jsonp\n[]\n"}},
		"no patch":   {&baremetalv1.SystemSeed{UserData: "#cloud-config-jsonp\n{hush}\n"}, "JSON patch"},
		"not a part": {&baremetalv1.SystemSeed{UserData: "Content-Type: text/plain\n\nhush\n"}, "MIME-Version"},
		"Ignition":   {seed: &baremetalv1.SystemSeed{UserData: `{"ignition": {"version": "3.4.0"}}`}},
		"Ignition 2": {&baremetalv1.SystemSeed{UserData: `{"ignition": {"version": "2.0.0"}}`},
			"ignition.version is not 3"},
		"JSON":             {&baremetalv1.SystemSeed{UserData: `{"hush": {}}`}, "cloud-init would ignore it"},
		"network: version": {seed: &baremetalv1.SystemSeed{NetworkConfig: "network:\n  version: 1\n"}},
		"host name":        {&baremetalv1.SystemSeed{Hostname: "a b"}, "seed.hostname"},
		"private key": {&baremetalv1.SystemSeed{SshAuthorizedKeys: []string{"-----BEGIN PRIVATE KEY-----\nhush"}},
			"private"},
		"two keys":     {&baremetalv1.SystemSeed{SshAuthorizedKeys: []string{aKey + "\n" + aKey}}, "ssh_authorized_keys[0]"},
		"no header":    {&baremetalv1.SystemSeed{UserData: "packages: [hush]\n"}, "cloud-init would ignore it"},
		"no YAML":      {&baremetalv1.SystemSeed{UserData: "#cloud-config\na: hush: b\n"}, "line 2"},
		"two":          {&baremetalv1.SystemSeed{UserData: "#cloud-config\nhush: b\n---\nc: d\n"}, "line 3 begins another"},
		"two networks": {&baremetalv1.SystemSeed{NetworkConfig: "version: 2\n---\n"}, "more than one document"},
		"a list":       {&baremetalv1.SystemSeed{UserData: "#cloud-config\n- hush\n"}, "not a mapping"},
		"too much":     {&baremetalv1.SystemSeed{UserData: "#!" + strings.Repeat("x", 64<<10)}, "at most 65536"},
		"version 3":    {&baremetalv1.SystemSeed{NetworkConfig: "version: 3\n"}, "neither 1 nor 2"},
		"no version":   {&baremetalv1.SystemSeed{NetworkConfig: "ethernets: {}\n"}, "no version"},
	} {
		err := validate.SystemSeed("seed", c.seed)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s repeats the secret: %v", name, err)
		}
	}
}

// oracle is what Debian's cloud-init says of every file of testdata/cases, which testdata/oracle.txt keeps. A new file
// is added to it by testdata/oracle.py.
func oracle(t *testing.T) (files []string, table string) {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*/*.data")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	text, err := os.ReadFile("testdata/oracle.txt")
	if err != nil {
		t.Fatal(err)
	}
	return files, string(text)
}

// TestCases: the parts of user-data are taken that cloud-init reads, and refused that it ignores.
func TestCases(t *testing.T) {
	t.Parallel()
	files, table := oracle(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		err = validate.SystemSeed("seed", &baremetalv1.SystemSeed{UserData: string(text)})
		said := map[bool]string{true: "taken", false: "ignored"}[err == nil]
		if line := filepath.Base(file) + ": " + said + "\n"; !strings.Contains("\n"+table, "\n"+line) {
			t.Errorf("%s%v", line, err)
		}
	}
}

// TestTheOracle runs the code of Debian's cloud-init over every case.
func TestTheOracle(t *testing.T) {
	t.Parallel()
	files, table := oracle(t)
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/oracle.py"}, files...)...)
	cmd.Env = append(
		os.Environ(),
		"PYTHONPATH="+cmp.Or(os.Getenv("INGOT_TEST_CLOUD_INIT"), "/usr/lib/python3/dist-packages"),
	)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run cloud-init, which scripts/install-deps test installs: %v", err)
	}
	if string(out) != table {
		t.Errorf("cloud-init:\n%s\ntestdata/oracle.txt:\n%s", out, table)
	}
}
