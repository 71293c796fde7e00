package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// An inventory that a database refuses is dropped. Refused for ever, it would block all later events of its agent.
func TestAnInventoryThatNoDatabaseKeeps(t *testing.T) {
	for name, installer := range map[string]string{"of a host": "", "of an installer": "m-1"} {
		t.Run(name, func(t *testing.T) { droppedInventories(t, installer) })
	}
}

func droppedInventories(t *testing.T, installer string) {
	t.Parallel()
	s := storetest.New(t)
	a, op, _ := storetest.Rebooting(t, s, "m-1")
	if installer != "" {
		replica(t, s, "UPDATE agents SET role = 'installer', operation_id = $1 WHERE agent_id = $2", op, a.ID)
	}
	tell := func(seq uint64, hash, document string) {
		t.Helper()
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: seq, InstallerOf: installer}
		err := s.Sessions.InventoryEvent(t.Context(), k, "m-1", hash, []byte(document), false,
			storetest.Now().Add(time.Duration(seq)*time.Second))
		if err != nil {
			t.Errorf("event %d: %v", seq, err)
		}
	}
	tell(1, "h1", `{"disks":[]}`)
	tell(2, "h2", `{"disks":[{"serial":"a\u0000b"}]}`)
	tell(3, "h3", `{"disks":[{"size_bytes":1e400000}]}`)
	tell(4, "h4", strings.Repeat("[", 9000)+strings.Repeat("]", 9000))
	tell(5, "h\x005", `{"disks":[]}`)
	tell(6, "h6", "null")
	tell(7, "h7", `{"disks":7}`) // no machine could be judged by it
	got, err := s.Machines.GetInventory(t.Context(), "m-1", 1)
	if err != nil || got.GetHash() != "h1" {
		t.Errorf("the last one is %q, %v", got.GetHash(), err)
	}
	tell(8, "h8", `{"disks":[{"serial":"S1"}]}`)
	if got, err = s.Machines.GetInventory(t.Context(), "m-1", 1); err != nil || got.GetHash() != "h8" {
		t.Errorf("the one after them is %q, %v", got.GetHash(), err)
	}
}

// The last inventory is compared with those before it, as far back as is asked.
func TestChangesOfInventories(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	a := inService(t, s, "m-1")
	for i, disk := range []string{"S1", "S2", "S3"} {
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: uint64(i + 1)}
		if err := s.Sessions.InventoryEvent(t.Context(), k, "m-1", disk, fmt.Appendf(nil, `{"disks":[{"serial":%q}]}`, disk),
			false, storetest.Now().Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	said := func(before int32) string {
		t.Helper()
		got, err := s.Machines.GetInventory(t.Context(), "m-1", before)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range got.GetChanges() {
			out = append(out, c.GetAt().AsTime().Format("04")+" "+c.GetKind()+" "+c.GetItem())
		}
		return strings.Join(out, ", ")
	}
	minute := func(n int) string { return storetest.Now().Add(time.Duration(n) * time.Minute).UTC().Format("04") }
	last := minute(2) + " removed S2, " + minute(2) + " added S3"
	if got := said(1); got != last {
		t.Errorf("since the last but one: %s", got)
	}
	if got, want := said(49), last+", "+minute(1)+" removed S1, "+minute(1)+" added S2"; got != want {
		t.Errorf("since the first: %s, want %s", got, want)
	}
	if got := said(0); got != "" {
		t.Errorf("since itself: %s", got)
	}
}

// BenchmarkInventoryEvent is one full inventory of a large server, each another than the one before.
func BenchmarkInventoryEvent(b *testing.B) {
	s := storetest.New(b)
	storetest.Lease(b, s)
	a := storetest.Live(b, s, "m-1")
	var pci strings.Builder
	for i := range 400 {
		fmt.Fprintf(
			&pci,
			`{"address":"0000:%02x:00.%d","class":"020000","vendor":"15b3","device":"101f","subsystem":"15b3:0001",`+
				`"driver":"mlx5_core","note":"0123456789012345678901234567"},`,
			i/8,
			i%8,
		)
	}
	document := `{"pci":[` + strings.TrimSuffix(pci.String(), ",") + `],"n":%d}`
	n := uint64(0)
	for b.Loop() {
		n++
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: n}
		if err := s.Sessions.InventoryEvent(b.Context(), k, "m-1", fmt.Sprint(n), fmt.Appendf(nil, document, n), false,
			storetest.Now().Add(time.Duration(n)*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(document)), "bytes")
}
