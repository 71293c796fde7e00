package dhcp

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

const (
	scriptURL = "http://10.77.0.1:8080/boot/auto.ipxe?mac=52:54:00:ab:cd:01"
	// nothingURL is a file that is not served.
	nothingURL = "http://10.77.0.1:8080/boot/none"
	imageURL   = "http://10.77.0.1:8080/boot/auto.efi?mac=52:54:00:ab:cd:01"
	uuid       = "\x00\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff"
)

func arch93(a iana.Arch) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptClientArch(a)) }

// firmware is what different programs say of themselves, and what they are to load.
var firmware = map[string]struct {
	says []dhcpv4.Modifier
	file string
	kind Program
}{
	"BIOS": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), arch93(iana.INTEL_X86PC)},
		"undionly.kpxe", PXE},
	"UEFI x64 (7)": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003016"), arch93(iana.EFI_X86_64)},
		"snponly.efi", PXE},
	"UEFI x64 (9)":  {[]dhcpv4.Modifier{option(60, "PXEClient"), arch93(iana.EFI_BC)}, "snponly.efi", PXE},
	"UEFI, no 93":   {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003016")}, "snponly.efi", PXE},
	"BIOS, no arch": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:xxxxx")}, "undionly.kpxe", PXE},
	"arm64":         {[]dhcpv4.Modifier{option(60, "PXEClient"), arch93(iana.EFI_ARM64)}, "snponly-arm64.efi", PXE},
	"Itanium":       {[]dhcpv4.Modifier{option(60, "PXEClient"), arch93(iana.EFI_ITANIUM)}, "", PXE},
	"HTTP x64 (15)": {[]dhcpv4.Modifier{option(60, "HTTPClient:Arch:00015:UNDI:003001"), arch93(iana.EFI_X86_HTTP)},
		imageURL, HTTP},
	"HTTP x64 (16)": {[]dhcpv4.Modifier{option(60, "HTTPClient:Arch:00016:UNDI:003001"), arch93(iana.EFI_X86_64_HTTP)},
		imageURL, HTTP},
	"HTTP arm64":  {[]dhcpv4.Modifier{option(60, "HTTPClient"), arch93(iana.EFI_ARM64_HTTP)}, imageURL, HTTP},
	"HTTP RISC-V": {[]dhcpv4.Modifier{option(60, "HTTPClient"), arch93(iana.EFI_RISCV64_HTTP)}, "", HTTP},
	"iPXE": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), option(77, "iPXE"), arch93(0)},
		scriptURL, IPXE},
	"iPXE, RFC 3004": {[]dhcpv4.Modifier{option(60, "PXEClient"), option(77, "\x03abc\x04iPXE"), arch93(7)}, scriptURL,
		IPXE},
	"iPXE by its 175": {[]dhcpv4.Modifier{option(60, "PXEClient"), option(175, "\xb1\x05\x01\x10\xec"), arch93(7)},
		scriptURL, IPXE},
	"Linux": {[]dhcpv4.Modifier{option(60, "udhcp 1.35"), option(77, "\x05iPXE")}, "", Plain},
}

func TestWhatFirmwareLoads(t *testing.T) {
	t.Parallel()
	full, proxy := testSegment(), testSegment()
	proxy.Mode = segment.ModeProxy
	for name, f := range firmware {
		for _, mode := range []segment.BootMode{segment.BootInstaller, segment.BootRescue, segment.BootDisk} {
			want := f.file
			if mode == segment.BootDisk {
				want = ""
			}
			if want == "" && f.kind == HTTP {
				want = nothingURL
			}
			a := segment.Assignment{Segment: "rack1", MAC: mac1, MachineID: "m1", OperationID: "o1", Mode: mode, Token: "t"}
			b := newBench(t, full)
			b.assign(a)
			offer, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, f.says...))
			checkBoot(t, name+" of a full server, "+string(mode), offer, want, f.kind)
			if want == "" && f.kind == PXE {
				checkLocal(t, name+" of a full server", offer)
			}
			if offer == nil || offer.YourIPAddr.String() != "10.77.0.100" {
				t.Errorf("%s: no address from a full server: %v", name, offer)
			}
			b = newBench(t, proxy)
			b.assign(a)
			offer, _ = b.ask(client1(dhcpv4.MessageTypeDiscover, append(f.says, option(97, uuid))...))
			switch {
			case want == "" && f.kind == PXE:
				checkLocal(t, name+" of a proxy", offer)
			case want == "" && offer != nil:
				t.Errorf("%s, %s: a proxy with nothing to say says %s", name, mode, offer.Summary())
			case want != "":
				checkBoot(t, name+" of a proxy", offer, want, f.kind)
				checkProxy(t, name, offer, f.kind)
			}
		}
	}
}

// checkLocal checks that PXE firmware goes on to its disk: a menu whose first entry is of type 0, and a prompt that
// does not wait (PXE 2.1, table 2-1).
func checkLocal(t *testing.T, what string, p *dhcpv4.DHCPv4) {
	t.Helper()
	if p == nil || p.ClassIdentifier() != "PXEClient" || p.BootFileName != "" {
		t.Errorf("%s: %v", what, p)
		return
	}
	pxe := dhcpv4.Options{}
	if err := pxe.FromBytes(p.Options.Get(dhcpv4.OptionVendorSpecificInformation)); err != nil {
		t.Fatalf("%s: option 43: %v", what, err)
	}
	if control, menu, prompt := pxe[6], pxe[9], pxe[10]; len(pxe) != 3 || string(control) != "\x03" ||
		string(menu) != "\x00\x00\x04disk" || prompt[0] != 0 {
		t.Errorf("%s: option 43: %v", what, pxe)
	}
}

func checkBoot(t *testing.T, what string, p *dhcpv4.DHCPv4, want string, kind Program) {
	t.Helper()
	if p == nil {
		t.Errorf("%s: no answer", what)
		return
	}
	if p.BootFileName != want || p.BootFileNameOption() != want {
		t.Errorf("%s: file %q, option 67 %q, want %q", what, p.BootFileName, p.BootFileNameOption(), want)
	}
	option := string(p.Options.Get(dhcpv4.OptionBootfileName))
	if ended := strings.HasSuffix(option, "\x00"); ended != (want != "" && kind != HTTP && kind != IPXE) {
		t.Errorf("%s: option 67 is %q", what, option)
	}
	if has := p.Options.Has(dhcpv4.OptionTFTPServerName); has != (want != "" && kind != HTTP) {
		t.Errorf("%s: option 66 is there: %v", what, has)
	}
	if next := p.ServerIPAddr.String(); (next == "10.77.0.1") != (want != "") {
		t.Errorf("%s: next server %s", what, next)
	}
	if want != "" && kind == HTTP && p.ClassIdentifier() != "HTTPClient" {
		t.Errorf("%s: vendor class %q", what, p.ClassIdentifier())
	}
}

func checkProxy(t *testing.T, what string, p *dhcpv4.DHCPv4, kind Program) {
	t.Helper()
	if p.YourIPAddr.String() != "0.0.0.0" || p.Options.Has(dhcpv4.OptionIPAddressLeaseTime) ||
		p.Options.Has(dhcpv4.OptionSubnetMask) {
		t.Errorf("%s: a proxy gives an address: %s", what, p.Summary())
	}
	if kind == HTTP {
		return
	}
	if p.ClassIdentifier() != "PXEClient" ||
		string(p.Options.Get(dhcpv4.OptionVendorSpecificInformation)) != "\x06\x01\x08\xff" ||
		string(p.Options.Get(dhcpv4.OptionClientMachineIdentifier)) != uuid {
		t.Errorf("%s: options 60, 43 or 97: %s", what, p.Summary())
	}
}

func TestIPXEIsToldNotToWaitForAProxy(t *testing.T) {
	t.Parallel()
	for _, mode := range []segment.BootMode{segment.BootInstaller, segment.BootDisk} {
		b := newBench(t, testSegment())
		b.assign(segment.Assignment{Segment: "rack1", MAC: mac1, Mode: mode})
		offer, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, firmware["iPXE"].says...))
		if got := string(offer.Options.Get(optionIPXE)); got != "\xb0\x01\x01" {
			t.Errorf("%s: option 175: %q", mode, got)
		}
	}
}

func TestUnknownMachines(t *testing.T) {
	t.Parallel()
	for discovery, want := range map[segment.Discovery]struct {
		file   string
		events int
	}{segment.DiscoveryOff: {"", 0}, segment.DiscoveryReport: {"", 1}, segment.DiscoveryBoot: {scriptURL, 1}} {
		s := testSegment()
		s.Discovery = discovery
		b := newBench(t, s)
		says := append(firmware["iPXE"].says, option(97, uuid), option(12, "lost"))
		offer, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, says...))
		checkBoot(t, "discovery "+string(discovery), offer, want.file, IPXE)
		if len(b.events) != want.events {
			t.Fatalf("discovery %s: %d events", discovery, len(b.events))
		}
		u := Unknown{
			Segment: "rack1", MAC: mac1, Address: netip.MustParseAddr("10.77.0.100"), Program: IPXE, Arch: 0,
			VendorClass: "PXEClient:Arch:00000:UNDI:002001", Hostname: "lost", UUID: "00112233-4455-6677-8899-aabbccddeeff",
		}
		if want.events == 1 && b.events[0] != u {
			t.Errorf("%+v, want %+v", b.events[0], u)
		}
		s.Mode = segment.ModeProxy
		b = newBench(t, s)
		offer, _ = b.ask(client1(dhcpv4.MessageTypeDiscover, says...))
		if (offer != nil) != (want.file != "") || len(b.events) != want.events {
			t.Errorf("proxy, discovery %s: %v, %d events", discovery, offer, len(b.events))
		}
	}
}

func TestAssignmentOfAnotherSegment(t *testing.T) {
	t.Parallel()
	s := testSegment()
	s.Discovery = segment.DiscoveryBoot
	b := newBench(t, s)
	b.assign(segment.Assignment{Segment: "rack9", MAC: mac1, Mode: segment.BootInstaller,
		Address: netip.MustParseAddr("10.77.0.50")})
	offer, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, firmware["iPXE"].says...))
	checkBoot(t, "a card assigned elsewhere", offer, "", IPXE)
	if offer.YourIPAddr.String() != "10.77.0.100" || len(b.events) != 0 {
		t.Errorf("%v, %+v", offer, b.events)
	}
}

func TestFixedAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t, testSegment())
	b.assign(segment.Assignment{Segment: "rack1", MAC: mac1, Mode: segment.BootDisk,
		Address: netip.MustParseAddr("10.77.0.50")})
	if offer, _ := b.ask(client1(dhcpv4.MessageTypeDiscover)); offer == nil || offer.YourIPAddr.String() != "10.77.0.50" {
		t.Errorf("%v", offer)
	}
	if ack, _ := b.ask(client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x32"))); ack == nil ||
		ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("%v", ack)
	}
}

func TestBootServerPort(t *testing.T) {
	t.Parallel()
	s := testSegment()
	s.Mode = segment.ModeProxy
	b := newBench(t, s)
	b.assign(segment.Assignment{Segment: "rack1", MAC: mac1, Mode: segment.BootInstaller})
	from := netip.MustParseAddrPort("10.77.0.180:4011")
	says := append(firmware["UEFI x64 (7)"].says, option(97, uuid), dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 180)))
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
		p, r := b.askOn(bootPort, from, client1(kind, says...))
		if p == nil || p.MessageType() != dhcpv4.MessageTypeAck || r.to != from || r.needsSave ||
			p.ClientIPAddr.String() != "10.77.0.180" {
			t.Fatalf("%v: %v, %+v", kind, p, r)
		}
		checkBoot(t, "port 4011", p, "snponly.efi", PXE)
		checkProxy(t, "port 4011", p, PXE)
	}
	if p, _ := b.askOn(bootPort, from, client1(dhcpv4.MessageTypeDiscover, says...)); p != nil {
		t.Errorf("a discover on port 4011: %v", p)
	}
	if p, _ := b.askOn(bootPort, netip.MustParseAddrPort("192.0.2.1:4011"),
		client1(dhcpv4.MessageTypeRequest, says...)); p != nil {
		t.Errorf("a request of another network: %v", p)
	}
	if p, _ := b.ask(client1(dhcpv4.MessageTypeRequest, says...)); p != nil {
		t.Errorf("a proxy answers a request for an address: %v", p)
	}
	b.assign()
	if p, _ := b.askOn(bootPort, from, client1(dhcpv4.MessageTypeRequest, says...)); p != nil {
		t.Errorf("an unknown machine: %v", p)
	}
	if p, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, says...)); p != nil {
		t.Errorf("an unknown machine of another server: %v", p)
	}
}
