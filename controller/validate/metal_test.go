package validate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

func fieldsOf(err error) []string {
	var e *failure.Error
	if !errors.As(err, &e) {
		return nil
	}
	var out []string
	for _, f := range e.Fields {
		out = append(out, f.Path)
	}
	slices.Sort(out)
	return out
}

func goodSegment() *pb.Segment {
	return &pb.Segment{
		Name: "prov", Interface: "eth1.20", Address: "10.20.0.1/24", PoolStart: "10.20.0.100", PoolEnd: "10.20.0.199",
		Router: "10.20.0.1",
		Dns:    []string{"10.20.0.1", "9.9.9.9"}, Relays: []string{"10.30.0.1"},
	}
}

func TestSegmentsAreFilled(t *testing.T) {
	in := goodSegment()
	in.State, in.ForeignDhcpServer, in.PoolSize, in.PoolUsed = "up", "1.2.3.4", 5, 6
	got, err := Segments("segments", []*pb.Segment{in})
	if err != nil {
		t.Fatal(err)
	}
	want := goodSegment()
	want.Mode, want.Discovery, want.LeaseSeconds, want.HttpPort = "dhcp", "report", 3600, 8080
	if !proto.Equal(got[0], want) || in.GetMode() != "" {
		t.Errorf("%v, from %v", got[0], in)
	}
	again, err := Segments("segments", got)
	if err != nil || !proto.Equal(again[0], want) {
		t.Errorf("what was filled: %v, %v", again, err)
	}
}

func TestBadSegments(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *pb.Segment)
		field  string
	}{
		"name":             {func(g *pb.Segment) { g.Name = "Prov" }, "name"},
		"no name":          {func(g *pb.Segment) { g.Name = "" }, "name"},
		"device":           {func(g *pb.Segment) { g.Interface = "eth0/1" }, "interface"},
		"long device":      {func(g *pb.Segment) { g.Interface = strings.Repeat("e", 16) }, "interface"},
		"dots":             {func(g *pb.Segment) { g.Interface = ".." }, "interface"},
		"no prefix":        {func(g *pb.Segment) { g.Address = "10.20.0.1" }, "address"},
		"network":          {func(g *pb.Segment) { g.Address = "10.20.0.0/24" }, "address"},
		"broadcast":        {func(g *pb.Segment) { g.Address = "10.20.0.255/24" }, "address"},
		"point to point":   {func(g *pb.Segment) { g.Address = "10.20.0.1/31" }, "address"},
		"IPv6":             {func(g *pb.Segment) { g.Address = "fd00::1/64" }, "address"},
		"loopback":         {func(g *pb.Segment) { g.Address = "127.0.0.1/8" }, "address"},
		"own in pool":      {func(g *pb.Segment) { g.Address = "10.20.0.150/24" }, "address"},
		"router in pool":   {func(g *pb.Segment) { g.Router = "10.20.0.150" }, "router"},
		"router elsewhere": {func(g *pb.Segment) { g.Router = "10.21.0.1" }, "router"},
		"pool elsewhere":   {func(g *pb.Segment) { g.PoolStart = "10.21.0.1" }, "pool_start"},
		"pool to the end":  {func(g *pb.Segment) { g.PoolEnd = "10.20.0.255" }, "pool_end"},
		"no pool":          {func(g *pb.Segment) { g.PoolEnd = "" }, "pool_end"},
		"backwards":        {func(g *pb.Segment) { g.PoolStart = "10.20.0.200" }, "pool_end"},
		"huge": {func(g *pb.Segment) {
			g.Address, g.PoolStart, g.PoolEnd = "10.20.0.1/8", "10.100.0.1",
				"10.200.0.1"
		}, "pool_end"},
		"pool of a proxy": {func(g *pb.Segment) { g.Mode = "proxy" }, "pool_start"},
		"mode":            {func(g *pb.Segment) { g.Mode = "server" }, "mode"},
		"discovery":       {func(g *pb.Segment) { g.Discovery = "on" }, "discovery"},
		"short lease":     {func(g *pb.Segment) { g.LeaseSeconds = 59 }, "lease_seconds"},
		"negative lease":  {func(g *pb.Segment) { g.LeaseSeconds = -1 }, "lease_seconds"},
		"port":            {func(g *pb.Segment) { g.HttpPort = 65536 }, "http_port"},
		"DNS":             {func(g *pb.Segment) { g.Dns = []string{"9.9.9.9", "dns.example.org"} }, "dns[1]"},
		"DNS twice":       {func(g *pb.Segment) { g.Dns = []string{"9.9.9.9", "9.9.9.9"} }, "dns[1]"},
		"relay":           {func(g *pb.Segment) { g.Relays = []string{"0.0.0.0"} }, "relays[0]"},
		"relays":          {func(g *pb.Segment) { g.Relays = make([]string, maxRelays+1) }, "relays"},
	} {
		bad := goodSegment()
		c.change(bad)
		first := &pb.Segment{Name: "first", Interface: "eth9", Address: "192.168.0.1/24", Mode: "proxy"}
		_, err := Segments("segments", []*pb.Segment{first, bad})
		if got := fieldsOf(err); !slices.Equal(got, []string{"segments[1]." + c.field}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Segments("segments", make([]*pb.Segment, maxSegments+1)); !slices.Equal(fieldsOf(err),
		[]string{"segments"}) {
		t.Errorf("%v", err)
	}
	if _, err := Segments("segments", []*pb.Segment{nil}); len(fieldsOf(err)) < 3 {
		t.Errorf("an empty one: %v", err)
	}
}

func TestSegmentsThatClash(t *testing.T) {
	a, b := goodSegment(), goodSegment()
	_, err := Segments("s", []*pb.Segment{a, b})
	if got := fieldsOf(err); !slices.Equal(got, []string{"s[1].address", "s[1].interface", "s[1].name"}) {
		t.Errorf("%v", err)
	}
	b.Name, b.Interface, b.Address, b.PoolStart, b.PoolEnd, b.Router = "other", "eth2", "10.20.1.1/16", "10.20.1.2",
		"10.20.1.3", ""
	_, err = Segments("s", []*pb.Segment{a, b})
	if got := fieldsOf(err); !slices.Equal(got, []string{"s[1].address"}) {
		t.Errorf("%v", err)
	}
}

func TestNewImage(t *testing.T) {
	ok := func() *pb.Image { return &pb.Image{ImageRef: "debian-12_x.y", Url: "https://h/x?q=1"} }
	im, err := NewImage("image", ok(), false)
	if err != nil || im.GetKind() != "os" || im.GetArch() != "" || im.GetFormat() != "" {
		t.Errorf("%v, %v", im, err)
	}
	im = ok()
	im.Firmware = []string{"uefi", "bios", "uefi"}
	if im, err = NewImage("image", im, false); err != nil || !slices.Equal(im.GetFirmware(), []string{"bios", "uefi"}) {
		t.Errorf("%v, %v", im, err)
	}
	for name, c := range map[string]struct {
		change func(im *pb.Image)
		field  string
	}{
		"name":          {func(im *pb.Image) { im.ImageRef = "Debian" }, "image_ref"},
		"long name":     {func(im *pb.Image) { im.ImageRef = strings.Repeat("a", 64) }, "image_ref"},
		"path":          {func(im *pb.Image) { im.ImageRef = "a/b" }, "image_ref"},
		"kind":          {func(im *pb.Image) { im.Kind = "kernel" }, "kind"},
		"arch":          {func(im *pb.Image) { im.Arch = "x86_64" }, "arch"},
		"format":        {func(im *pb.Image) { im.Format = "vmdk" }, "format"},
		"no url":        {func(im *pb.Image) { im.Url = "" }, "url"},
		"file":          {func(im *pb.Image) { im.Url = "file:///etc/passwd" }, "url"},
		"no host":       {func(im *pb.Image) { im.Url = "http:///x" }, "url"},
		"credentials":   {func(im *pb.Image) { im.Url = "https://u:p@h/x" }, "url"},
		"fragment":      {func(im *pb.Image) { im.Url = "https://h/x#y" }, "url"},
		"control":       {func(im *pb.Image) { im.Url = "https://h/x\n" }, "url"},
		"upper digest":  {func(im *pb.Image) { im.Sha256File = strings.Repeat("A", 64) }, "sha256_file"},
		"short digest":  {func(im *pb.Image) { im.Sha256Source = "ab" }, "sha256_source"},
		"size":          {func(im *pb.Image) { im.SizeBytes = -1 }, "size_bytes"},
		"minimum":       {func(im *pb.Image) { im.MinimumDiskBytes = -1 }, "minimum_disk_bytes"},
		"firmware":      {func(im *pb.Image) { im.Firmware = []string{"bios", "efi"} }, "firmware[1]"},
		"packed kernel": {func(im *pb.Image) { im.Kind, im.Format = "installer-kernel", "raw.zst" }, "format"},
	} {
		im := ok()
		c.change(im)
		_, err := NewImage("image", im, false)
		if got := fieldsOf(err); !slices.Equal(got, []string{"image." + c.field}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewImage("image", ok(), true); !slices.Equal(fieldsOf(err), []string{"image.url"}) {
		t.Errorf("an upload with a URL: %v", err)
	}
	if _, err := NewImage("image", nil, true); !slices.Equal(fieldsOf(err), []string{"image"}) {
		t.Errorf("none: %v", err)
	}
}

func TestBMCCredentials(t *testing.T) {
	for name, c := range map[string]struct{ ref, user, password, field string }{
		"good":      {"rack-42", "Administrator", "p a ß\t:\"'", ""},
		"name":      {"Rack", "u", "p", "credentials_ref"},
		"user":      {"r", "", "p", "username"},
		"long user": {"r", strings.Repeat("u", 65), "p", "username"},
		"password":  {"r", "u", "", "password"},
		"line":      {"r", "u", "hunter2\n", "password"},
		"long":      {"r", "u", strings.Repeat("hunter2", 40), "password"},
	} {
		err := BMCCredentials(&pb.SetBMCCredentialsRequest{CredentialsRef: c.ref, Username: c.user, Password: c.password})
		got := fieldsOf(err)
		if c.field == "" && err != nil || c.field != "" && !slices.Equal(got, []string{c.field}) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

func TestDiskRules(t *testing.T) {
	for _, good := range []string{
		"", " ", "serial=S1", "serial = S1 , size >= 100 GiB", "wwn=0x5000", "path=/dev/disk/by-id/x", "model=Samsung*",
		"size=1", "size<2TB",
		"size>100B,size<=8000000TiB", "size>99999999999KiB", "serial=a=b",
	} {
		if why := diskRule(good); why != "" {
			t.Errorf("%q: %v", good, why)
		}
	}
	for _, bad := range []string{
		",", "serial", "serial=", "=x", "serial>S1", "path=sda", "size>=", "size>=big", "size=-1", "size=1PiB", "size==1",
		"name=x",
		"serial=a,,model=b", "size=9999999999999999999", "size=99999999999999GiB", "serial=\x00", strings.Repeat("s", 300),
	} {
		if why := diskRule(bad); why == "" {
			t.Errorf("%q passed", bad)
		}
	}
	m := &pb.Machine{MachineId: "m", Spec: &pb.MachineSpec{InstallDisk: "x",
		ProtectedDisks: []string{"serial=A", " ", "path=x"}}}
	_, err := Machine("machine", m)
	if got := fieldsOf(err); !slices.Equal(got, []string{"machine.spec.install_disk", "machine.spec.protected_disks[1]",
		"machine.spec.protected_disks[2]"}) {
		t.Errorf("%v", err)
	}
}
