package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func TestWhatImagesAndSitesShow(t *testing.T) {
	for line, want := range map[string][]string{
		"image list":                {"IMAGE_REF", "debian-12", "raw.zst", "1.0 GiB", "100.0 MiB"},
		"image list -o wide":        {"f00d", "beef", "http://h/x", "uefi", "1.1 GiB"},
		"image list -o json":        {`"image_ref": "debian-12"`, `"size_bytes": "1073741824"`},
		"image list -o name":        {"debian-12\n"},
		"image show debian-12":      {"Image:", "1.0 GiB (1073741824 bytes)", "SHA256Raw:"},
		"image remove debian-12":    {"Removed debian-12\n"},
		"site list":                 {"berlin", "prov", "a-1"},
		"site get berlin":           {"2, not the newest", "10.0.0.10-10.0.0.20", "4/11", "up", "10.0.0.9"},
		"site get berlin -o yaml":   {"site: berlin", "pool_start: 10.0.0.10"},
		"site leases berlin":        {"52:54:00:00:00:01", "m-1", "expired"},
		"site leases berlin -oname": {"10.0.0.10\n"},
		"site discovered":           {"52:54:00:00:00:02", "uefi-x64", "ev[2Jil"},
		"bmc credentials list":      {"rack-42", "admin", "2", "sealed with a lost key"},
		"bmc credentials delete x":  {"Deleted rack-42\n"},
	} {
		got := (&fakeServer{}).run(t, strings.Fields(line)...)
		for _, w := range want {
			if got.code != 0 || !strings.Contains(got.out, w) {
				t.Errorf("%s: no %q in (exit code %d, %s)\n%s", line, w, got.code, got.err, got.out)
			}
		}
	}
}

func TestWhatImagesAndSitesSend(t *testing.T) {
	machine := &pb.Machine{MachineId: "m", Spec: &pb.MachineSpec{
		Site: "berlin", MacAddresses: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, BmcEndpoint: "10.0.0.2",
		BmcCredentialsRef: "rack-42",
		InstallDisk:       "serial=a,size>=1GiB", ProtectedDisks: []string{"serial=b,model=c", "wwn=d"},
	}}
	register := "machine register m --mac 52:54:00:00:00:01 --mac-addresses 52:54:00:00:00:02 --bmc-endpoint 10.0.0.2 " +
		"--bmc-credentials rack-42 " +
		"--site berlin --install-disk serial=a,size>=1GiB --protected-disk serial=b,model=c --protected-disks wwn=d"
	for line, want := range map[string]proto.Message{
		"image list --kind os --arch arm64": &pb.ListImagesRequest{Filter: "kind=os,arch=arm64", PageSize: 1000},
		"image add x https://h/x --sha256 ab --kind os --firmware bios,uefi --minimum-disk 5": &pb.AddImageRequest{
			Image: &pb.Image{
				ImageRef: "x", Url: "https://h/x", Sha256Source: "ab", Kind: "os", Firmware: []string{"bios", "uefi"},
				MinimumDiskBytes: 5}},
		"image remove x":                &pb.RemoveImageRequest{ImageRef: "x"},
		"site discovered berlin":        &pb.ListDiscoveredRequest{Site: "berlin", PageSize: 1000},
		"bmc credentials delete rack-1": &pb.DeleteBMCCredentialsRequest{CredentialsRef: "rack-1"},
		register:                        &pb.RegisterMachineRequest{Machine: machine},
	} {
		f := &fakeServer{}
		got := f.run(t, strings.Fields(line)...)
		for _, r := range f.registered {
			f.sent = append(f.sent, r)
		}
		if got.code != 0 || len(f.sent) != 1 || !proto.Equal(f.sent[0], want) {
			t.Errorf("%s: sent %v, want %v (%+v)", line, f.sent, want, got)
		}
	}
}

func TestUploadOfAFile(t *testing.T) {
	content := []byte(strings.Repeat("image", 200_000))
	path := filepath.Join(t.TempDir(), "x.raw")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	f := &fakeServer{}
	got := f.run(t, "image", "add", "x", path, "--kind", "installer-kernel", "--sha256", strings.ToUpper(digest))
	want := &pb.Image{ImageRef: "x", Kind: "installer-kernel", FileSizeBytes: int64(len(content)), Sha256Source: digest}
	if got.code != 0 || !proto.Equal(f.sent[0], want) || string(f.uploaded) != string(content) || got.err != "" {
		t.Errorf("%+v, sent %v and %d bytes", got, f.sent, len(f.uploaded))
	}
	f = &fakeServer{knownDigest: digest}
	if got := f.run(t, "image", "add", "x", path, "-o", "name"); got.code != 0 || got.out != "debian-12\n" {
		t.Errorf("a server that knows it: %+v", got)
	}
	f = &fakeServer{}
	if got := f.run(t, "image", "add", "x", path, "--sha256", strings.Repeat("0", 64)); got.code != 2 || len(f.sent) != 0 {
		t.Errorf("another digest: %+v, sent %v", got, f.sent)
	}
	if got := f.run(t, "image", "add", "x", path+".none"); got.code != 1 || len(f.sent) != 0 {
		t.Errorf("no file: %+v", got)
	}
	f = &fakeServer{}
	got = f.runWith(t, func(c *command.Config) { c.In = strings.NewReader("piped") }, "image", "add", "x", "-")
	if got.code != 0 || string(f.uploaded) != "piped" || f.sent[0].(*pb.Image).GetFileSizeBytes() != 0 {
		t.Errorf("standard input: %+v, %q", got, f.uploaded)
	}
	f = &fakeServer{}
	got = f.runWith(t, func(c *command.Config) { c.ErrTerminal = true }, "image", "add", "x", path)
	if got.code != 0 || !strings.Contains(got.err, "sending [") || !strings.HasSuffix(got.err, "\r\x1b[K") {
		t.Errorf("at a terminal: %+v", got)
	}
}

func TestSiteFiles(t *testing.T) {
	f := &fakeServer{}
	shown := f.run(t, "site", "get", "berlin", "-o", "yaml")
	path := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(path, []byte(shown.out), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.run(t, "site", "set", "-f", path); got.code != 0 || len(f.sent) != 1 {
		t.Fatalf("%+v", got)
	}
	if r := f.sent[0].(*pb.SetSiteRequest); r.GetSite() != "berlin" || r.GetSegments()[0].GetPoolEnd() != "10.0.0.20" {
		t.Errorf("what was shown cannot be set again: %v", r)
	}
	got := f.runWith(
		t,
		func(c *command.Config) { c.In = strings.NewReader("site: x\nsegmnts: []\n") },
		"site",
		"set",
		"-f",
		"-",
	)
	if got.code != 2 || !strings.Contains(got.err, "segmnts") || len(f.sent) != 1 {
		t.Errorf("an unknown field: %+v", got)
	}
	if got := f.run(t, "site", "set"); got.code != 1 {
		t.Errorf("no file: %+v", got)
	}
}

// TestPasswords: they come from a terminal, a file or standard input, and are shown nowhere.
func TestPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte(" hunter2 \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	piped := func(c *command.Config) { c.In = strings.NewReader("hunter2\nnot this\n") }
	typed := func(c *command.Config) { c.ReadPassword = func() ([]byte, error) { return []byte("hunter2"), nil } }
	for name, c := range map[string]struct {
		change func(*command.Config)
		args   string
		want   string
	}{
		"piped":    {piped, "", "hunter2"},
		"dash":     {piped, "--password-file -", "hunter2"},
		"dash too": {func(c *command.Config) { piped(c); typed(c) }, "--password-file -", "hunter2"},
		"typed":    {typed, "", "hunter2"},
		"file":     {typed, "--password-file " + file, " hunter2 "},
		"no end":   {func(c *command.Config) { c.In = strings.NewReader("hunter2") }, "", "hunter2"},
	} {
		f := &fakeServer{}
		got := f.runWith(t, c.change, strings.Fields("bmc credentials set rack-42 --username admin "+c.args)...)
		if got.code != 0 || len(f.sent) != 1 || f.sent[0].(*pb.SetBMCCredentialsRequest).GetPassword() != c.want {
			t.Errorf("%s: %+v, sent %v", name, got, f.sent)
		}
		if strings.Contains(got.out+got.err, "hunter2") {
			t.Errorf("%s: the password is shown: %+v", name, got)
		}
	}
	f := &fakeServer{}
	broken := func(c *command.Config) {
		c.ReadPassword = func() ([]byte, error) { return nil, errors.New("no terminal") }
	}
	if got := f.runWith(t, broken, "bmc", "credentials", "set", "x", "--username", "u"); got.code != 1 ||
		len(f.sent) != 0 {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "bmc", "credentials", "set", "x", "--username", "u", "--password", "p"); got.code != 1 ||
		len(f.sent) != 0 {
		t.Errorf("a password in the arguments: %+v", got)
	}
}

func TestCompletionOfImagesAndSites(t *testing.T) {
	for line, want := range map[string]string{
		"reimage m --image ":       "debian-12\tos amd64 1.0 GiB\n",
		"image show ":              "debian-12\t",
		"site get ":                "berlin\n",
		"bmc credentials set ":     "rack-42\tadmin\n",
		"machine update m --site ": "berlin\n",
		"reimage m --path ":        "kexec\n",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if got := (&fakeServer{machines: fleet().machines}).run(t, args...); got.code != 0 ||
			!strings.Contains(got.out, want) {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
