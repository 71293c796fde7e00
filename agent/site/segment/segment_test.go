package segment_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/task"
)

func good() segment.Segment {
	return segment.Segment{
		Name: "rack1", Interface: "eth1", Address: netip.MustParsePrefix("10.1.0.1/24"),
		PoolStart: netip.MustParseAddr("10.1.0.100"), PoolEnd: netip.MustParseAddr("10.1.0.199"),
		LeaseTime: time.Hour, Mode: segment.ModeDHCP, Discovery: segment.DiscoveryReport, HTTPPort: 8080,
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := good().Validate(); err != nil {
		t.Fatalf("a good segment: %v", err)
	}
	behindRelay := good()
	behindRelay.Subnet = netip.MustParsePrefix("10.7.0.0/24")
	behindRelay.PoolStart, behindRelay.PoolEnd = netip.MustParseAddr("10.7.0.9"), netip.MustParseAddr("10.7.0.9")
	if err := behindRelay.Validate(); err != nil {
		t.Errorf("a segment behind a relay: %v", err)
	}
	for want, spoil := range map[string]func(*segment.Segment){
		"no name":            func(s *segment.Segment) { s.Name = "" },
		"no interface":       func(s *segment.Segment) { s.Interface = "" },
		"not an IPv4":        func(s *segment.Segment) { s.Address = netip.MustParsePrefix("fd00::1/64") },
		"router fd00::1":     func(s *segment.Segment) { s.Router = netip.MustParseAddr("fd00::1") },
		"name server ::1":    func(s *segment.Segment) { s.DNS = []netip.Addr{netip.MustParseAddr("::1")} },
		"relay invalid IP":   func(s *segment.Segment) { s.Relays = []netip.Addr{{}} },
		"is not of IPv4":     func(s *segment.Segment) { s.Subnet = netip.MustParsePrefix("fd00::/64") },
		"http port 0":        func(s *segment.Segment) { s.HTTPPort = 0 },
		"discovery":          func(s *segment.Segment) { s.Discovery = "yes" },
		"mode":               func(s *segment.Segment) { s.Mode = "none" },
		"lease time":         func(s *segment.Segment) { s.LeaseTime = time.Second },
		"is not in":          func(s *segment.Segment) { s.PoolEnd = netip.MustParseAddr("10.2.0.1") },
		"pool 10.1.0.100 to": func(s *segment.Segment) { s.PoolEnd = netip.Addr{} },
		"more than 65536": func(s *segment.Segment) {
			s.Subnet = netip.MustParsePrefix("10.0.0.0/8")
			s.PoolStart, s.PoolEnd = netip.MustParseAddr("10.4.0.0"), netip.MustParseAddr("10.5.0.0")
		},
		"before its start": func(s *segment.Segment) { s.PoolEnd = netip.MustParseAddr("10.1.0.9") },
	} {
		s := good()
		spoil(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a complaint with %q, have %v", want, err)
		}
	}
}

func TestSegmentURLs(t *testing.T) {
	t.Parallel()
	if got := good().HTTPBase(); got != "http://10.1.0.1:8080" {
		t.Errorf("HTTPBase = %s", got)
	}
	if got := good().Network().String(); got != "10.1.0.0/24" {
		t.Errorf("Network = %s", got)
	}
}

func TestMACForms(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"52:54:00:AB:cd:ef", "52-54-00-ab-cd-ef", "5254.00ab.cdef"} {
		m, err := segment.ParseMAC(form)
		if err != nil || m.String() != "52:54:00:ab:cd:ef" {
			t.Errorf("ParseMAC(%q) = %v, %v", form, m, err)
		}
	}
	for _, form := range []string{"", "52:54:00:ab:cd", "00:00:00:00:00:00", "02:00:5e:10:00:00:00:01",
		"52:54:00:ab:cd:eg"} {
		if m, err := segment.ParseMAC(form); err == nil {
			t.Errorf("ParseMAC(%q) = %v, want an error", form, m)
		}
	}
	var m segment.MAC
	if err := m.UnmarshalText([]byte("02:00:00:00:00:01")); err != nil || m != (segment.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("UnmarshalText: %v, %v", m, err)
	}
	if err := m.UnmarshalText([]byte("x")); err == nil || m != (segment.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("UnmarshalText of nonsense: %v, %v", m, err)
	}
}

func installer(last byte, machine, token string) segment.Assignment {
	return segment.Assignment{
		Segment: "rack1", MAC: segment.MAC{2, 0, 0, 0, 0, last}, MachineID: machine, OperationID: "op-" + machine,
		Mode: segment.BootInstaller, Token: token,
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var table segment.Table
	if _, ok := table.Find(segment.MAC{1}); ok || table.FindToken("t1") != nil || table.Document().Revision != 0 {
		t.Error("an empty table knows something")
	}
	disk := installer(3, "m2", "t-dead")
	disk.Mode = segment.BootDisk
	doc := segment.Document{Revision: 7, Assignments: []segment.Assignment{installer(1, "m1", "t1"),
		installer(2, "m1", "t1"), disk}}
	if err := table.Replace(doc); err != nil {
		t.Fatal(err)
	}
	if a, ok := table.Find(segment.MAC{2, 0, 0, 0, 0, 2}); !ok || a.MachineID != "m1" {
		t.Errorf("Find = %v, %v", a, ok)
	}
	if got := table.FindToken("t1"); len(got) != 2 {
		t.Errorf("a token of two cards gives %d assignments", len(got))
	}
	if table.FindToken("t-dead") != nil || table.FindToken("") != nil || table.FindToken("other") != nil {
		t.Error("a token that is dead, empty or unknown gives assignments")
	}
	withAddress := installer(9, "m9", "t9")
	withAddress.Address = netip.MustParseAddr("10.1.0.9")
	doc.Assignments = append(doc.Assignments, withAddress)
	if err := table.Replace(doc); err != nil {
		t.Fatal(err)
	}
	if a, ok := table.FindAddress(withAddress.Address); !ok || a.MachineID != "m9" {
		t.Errorf("FindAddress = %v, %v", a, ok)
	}
	if a, ok := table.FindAddress(netip.Addr{}); ok {
		t.Errorf("no address is fixed for %v", a)
	}
	sameAddress := withAddress
	sameAddress.MAC, sameAddress.Token = segment.MAC{8}, "other"
	for what, bad := range map[string][]segment.Assignment{
		"one MAC twice":              {installer(1, "m1", "a"), installer(1, "m2", "b")},
		"no MAC":                     {{MachineID: "m1", Mode: segment.BootDisk}},
		"one address twice":          {withAddress, sameAddress},
		"no mode":                    {{MachineID: "m1", MAC: segment.MAC{1}}},
		"one token for two machines": {installer(1, "m1", "a"), installer(2, "m2", "a")},
	} {
		if err := table.Replace(segment.Document{Revision: 8, Assignments: bad}); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if table.Document().Revision != 7 {
		t.Error("a bad document took the place of a good one")
	}
}

func TestTableIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	var table segment.Table
	doc := func(revision int64) segment.Document {
		a, b := installer(1, "m1", "t"), installer(2, "m1", "t")
		a.Revision, b.Revision = revision, revision
		return segment.Document{Revision: revision, Assignments: []segment.Assignment{a, b}}
	}
	if err := table.Replace(doc(0)); err != nil {
		t.Fatal(err)
	}
	var torn, stop atomic.Bool
	g, _ := task.New(t.Context())
	g.Go("reader", func(context.Context) error {
		for !stop.Load() {
			if both := table.FindToken("t"); len(both) != 2 || both[0].Revision != both[1].Revision {
				torn.Store(true)
			}
		}
		return nil
	})
	for i := range int64(2000) {
		if err := table.Replace(doc(i)); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if torn.Load() {
		t.Error("a reader saw two documents at once")
	}
}
