package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// drawn fills a row: each field may be empty.
type drawn struct{ *rand.Rand }

func (d drawn) some() bool { return d.IntN(3) > 0 }

func (d drawn) text(of ...string) string {
	if !d.some() {
		return ""
	}
	if len(of) > 0 {
		return of[d.IntN(len(of))]
	}
	return []string{"a", "rack-7", "täßt", "with [brackets]", `with "quotes" and \`, "日本",
		fmt.Sprint(d.Uint64())}[d.IntN(7)]
}

func (d drawn) ptr() *string {
	if s := d.text(); s != "" {
		return &s
	}
	return nil
}

func (d drawn) time() time.Time {
	switch d.IntN(4) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(-d.Int64N(1e9), d.Int64N(1e9)).UTC()
	}
	return time.Unix(d.Int64N(4e9), d.Int64N(1e9)).UTC()
}

func (d drawn) timePtr() *time.Time {
	if t := d.time(); d.some() {
		return &t
	}
	return nil
}

func (d drawn) spec(t *testing.T) []byte {
	s := &baremetalv1.MachineSpec{
		SshEndpoint: d.text(), BmcEndpoint: d.text(), TargetClusterRef: d.text(), Provider: d.text(), Serial: d.text(),
		Rack:     d.text(),
		Location: d.text(), Region: d.text(), CustomerId: d.text(), ExternalId: d.text(), Group: d.text(), Site: d.text(),
		DefaultImageRef: d.text(), BmcCredentialsRef: d.text(), InstallDisk: d.text(), SshCredentialsRef: d.text(),
		ProviderRef: d.text(), InstallMirror: d.text(),
	}
	for d.some() {
		s.MacAddresses = append(s.MacAddresses, d.text())
		s.ProtectedDisks = append(s.ProtectedDisks, d.text())
		s.DataDisks = append(s.DataDisks, d.text())
		s.SshHostKeys = append(s.SshHostKeys, d.text())
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (d drawn) row(t *testing.T) (r dbsqlc.Machine, conds []dbsqlc.MachineCondition) {
	labels := map[string]string{}
	for d.some() {
		labels[fmt.Sprint("key-", d.IntN(9))] = d.text()
	}
	doc, err := json.Marshal(labels)
	if err != nil {
		t.Fatal(err)
	}
	r = dbsqlc.Machine{
		MachineID: "m-" + fmt.Sprint(d.IntN(99)), Labels: doc, Spec: d.spec(t),
		Phase:     d.text("READY", "MAINTENANCE", "FACTORY_READY", "ANOTHER"),
		NodeState: d.text("active", "offline", "retired"), NodeStateChangedAt: d.time(), CurrentOperationID: d.ptr(),
		UnresolvedCommandID: d.ptr(), AgentID: d.ptr(), BootID: d.text(), Simulated: d.some(), OsImageDigest: d.text(),
		Version: d.Int64(), CreatedAt: d.time(), UpdatedAt: d.time(), DeletedAt: d.timePtr(), PowerState: d.text(),
		PowerStateAt: d.timePtr(), BootMode: d.text(), InstallAttempts: int32(d.IntN(3)) - 1, LastInstallError: d.text(),
	}
	for d.some() {
		conds = append(conds, dbsqlc.MachineCondition{
			MachineID:      r.MachineID,
			Type:           d.text("Reachable", "BMCReachable", "RMA", "NeedsIntervention"),
			Status:         d.some(),
			Reason:         d.text(),
			Message:        d.text(),
			LastTransition: d.time(),
			Known:          d.some(),
			ObservedAt:     d.timePtr(),
			ObservedBy:     d.text("a-1"),
		})
	}
	return r, conds
}

// TestSealedMachinesAreTheSame: what a client reads of a machine that went over the wire sealed is what it reads of any
// other.
func TestSealedMachinesAreTheSame(t *testing.T) {
	t.Parallel()
	sealed, left := 0, 0
	for n := range uint64(3000) {
		d := drawn{rand.New(rand.NewPCG(n, 5))}
		r, conds := d.row(t)
		seen := convert.Seen{Heartbeat: d.timePtr(), SiteAgent: d.text("a-2"), SiteHeard: d.time()}
		var said *baremetalv1.ProviderStatus
		if d.some() {
			said = &baremetalv1.ProviderStatus{Provider: d.text(), Drift: d.text(), ChangedAt: timestamppb.New(time.Unix(9, 9))}
		}
		want, err := convert.MachineMessage(r, conds, seen)
		if err != nil {
			t.Fatal(err)
		}
		want.Status.Provider = said
		w := newMachineProto(1)
		first, ok := w.machine(r, conds, seen, said)
		if !ok {
			left++
			continue
		}
		sealed++
		if _, ok = w.machine(r, nil, convert.Seen{}, nil); !ok || first.GetMachineId() != r.MachineID {
			t.Fatalf("number %d: id %q; another one behind it: %t", n, first.GetMachineId(), ok)
		}
		b, err := proto.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		got := &baremetalv1.Machine{}
		if err := proto.Unmarshal(b, got); err != nil {
			t.Fatalf("number %d: %v", n, err)
		}
		if !proto.Equal(got, want) || len(got.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("number %d:\n%v\nis not\n%v", n, got, want)
		}
	}
	if sealed < 100 || left < 100 {
		t.Errorf("%d sealed, %d left to others", sealed, left)
	}
}

// TestEverySpecFieldIsKnown: a field of the spec that is missing in specFields makes every list slow, and nothing else
// shows it.
func TestEverySpecFieldIsKnown(t *testing.T) {
	t.Parallel()
	fields := (&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); specNumbers[name].number != fields.Get(i).Number() {
			t.Errorf("%s is not known", name)
		}
	}
}

func BenchmarkMachine(b *testing.B) {
	r := dbsqlc.Machine{
		MachineID: "m-0000001", Phase: "READY", NodeState: "active", BootID: "boot-1", CreatedAt: time.Unix(1e9, 5),
		UpdatedAt: time.Unix(1e9, 6), Version: 7,
		Labels: []byte(`{"env": "prod", "rack": "r1", "team": "team-1", "asset": "A000000001", "fill.rare": "no"}`),
		Spec: []byte(
			`{"rack": "r1", "site": "site-1", "group": "g1", "region": "eu-1", "serial": "SN0000001", "provider": "redfish", "mac_addresses": ["02:00:00:00:00:01"]}`,
		),
	}
	agent, beat := "a-1", time.Unix(1e9, 8)
	r.AgentID = &agent
	seen := convert.Seen{Heartbeat: &beat}
	conds := []dbsqlc.MachineCondition{{MachineID: r.MachineID, Type: "Reachable", Status: true, Known: true,
		Reason: "Heartbeat", LastTransition: time.Unix(1e9, 7)}}
	page := func(build func(i int) *baremetalv1.Machine) {
		out := &baremetalv1.ListMachinesResponse{}
		for i := range 1000 {
			out.Machines = append(out.Machines, build(i))
		}
		if _, err := proto.Marshal(out); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("message", func(b *testing.B) {
		for b.Loop() {
			page(func(int) *baremetalv1.Machine {
				m, err := convert.MachineMessage(r, conds, seen)
				if err != nil {
					b.Fatal(err)
				}
				return m
			})
		}
	})
	b.Run("sealed", func(b *testing.B) {
		for b.Loop() {
			w := newMachineProto(1000)
			page(func(int) *baremetalv1.Machine {
				m, ok := w.machine(r, conds, seen, nil)
				if !ok {
					b.Fatal("not flat")
				}
				return m
			})
		}
	})
}
