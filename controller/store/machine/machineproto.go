package machine

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/jsonscan"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// machineProto writes machines as they go over the wire, without making messages of them first: for lists, where making
// a message and writing it again is most of what a machine costs. It writes the same as machineMessage, or nothing.
type machineProto struct {
	page        []byte // all machines, one after the other
	spec, inner []byte // what goes into a field whose length is not known yet
}

// perMachine is room for a machine with a few labels; more is made when it is needed.
const perMachine = 768

func newMachineProto(machines int) *machineProto {
	return &machineProto{page: make([]byte, 0, machines*perMachine)}
}

// machine returns a message that has nothing but its id and the bytes of all other fields. ok is false where something
// is not flat.
func (w *machineProto) machine(
	r dbsqlc.Machine, conds []dbsqlc.MachineCondition, seen convert.Seen, said *baremetalv1.ProviderStatus,
) (m *baremetalv1.Machine, ok bool) {
	begin := len(w.page)
	b, ok := w.labels(w.page, r.Labels)
	if !ok {
		return nil, false
	}
	if w.spec, ok = wireSpec(w.spec[:0], r.Spec); !ok {
		return nil, false
	}
	b = wireMessage(b, 3, w.spec)
	if w.spec, ok = w.status(w.spec[:0], r, conds, seen, said); !ok {
		return nil, false
	}
	b = wireMessage(b, 4, w.spec)
	b = w.stamp(b, 5, r.CreatedAt)
	b = w.stamp(b, 6, r.UpdatedAt)
	b = w.stamp(b, 7, pgtx.TimeVal(r.DeletedAt))
	b = wireNumber(b, 8, uint64(r.Version))
	w.page = b
	m = &baremetalv1.Machine{MachineId: r.MachineID}
	m.ProtoReflect().SetUnknown(b[begin:len(b):len(b)])
	return m, true
}

func (w *machineProto) status(
	b []byte, r dbsqlc.Machine, conds []dbsqlc.MachineCondition, seen convert.Seen, said *baremetalv1.ProviderStatus,
) ([]byte, bool) {
	state, attention := fleet.Evaluate(convert.FleetFacts(r, conds))
	b = wireNumber(b, 1, uint64(baremetalv1.MachineStatus_Phase_value[r.Phase]))
	for _, c := range conds {
		if c.MachineID == r.MachineID {
			w.inner = w.condition(w.inner[:0], &c, &r, seen)
			b = wireMessage(b, 2, w.inner)
		}
	}
	b = wireText(b, 3, pgtx.StrVal(r.CurrentOperationID))
	b = wireNumber(b, 4, uint64(baremetalv1.MachineStatus_EffectiveState_value[string(state)]))
	b = wireText(b, 5, pgtx.StrVal(r.CurrentOperationID))
	b = wireText(b, 6, pgtx.StrVal(r.UnresolvedCommandID))
	b = wireNumber(b, 7, uint64(convert.NodeStateMessage(r.NodeState)))
	b = w.stamp(b, 8, r.NodeStateChangedAt)
	b = wireBool(b, 9, state.Schedulable())
	b = wireNumber(b, 10, uint64(int64(r.InstallAttempts)))
	b = wireText(b, 11, r.LastInstallError)
	b = wireText(b, 12, r.BootID)
	b = wireText(b, 13, pgtx.StrVal(r.AgentID))
	b = w.stamp(b, 14, pgtx.TimeVal(seen.Heartbeat))
	b = wireBool(b, 15, r.Simulated)
	b = wireText(b, 16, r.OsImageDigest)
	b = wireText(b, 17, r.PowerState)
	b = w.stamp(b, 18, pgtx.TimeVal(r.PowerStateAt))
	b = wireText(b, 19, r.BootMode)
	if said != nil {
		p, err := proto.Marshal(said)
		if err != nil {
			return b, false
		}
		b = wireMessage(b, 20, p)
	}
	b = wireText(b, 21, attention.Reason)
	b = wireText(b, 22, attention.Message)
	b = w.stamp(b, 23, pgtx.TimeVal(r.FirstProvisionedAt))
	b = wireText(b, 24, pgtx.StrVal(r.ActiveWorkflowID))
	b = wireText(b, 28, r.IdentityLevel)
	if tpm := convert.TPMMessage(r); tpm != nil {
		p, err := proto.Marshal(tpm)
		if err != nil {
			return b, false
		}
		b = wireMessage(b, 29, p)
	}
	b = wireBool(b, 30, r.Agentless)
	return wireText(b, 31, r.ProbeIp), true
}

// condition uses no scratch space of its own but stamp's, which is on the stack.
func (w *machineProto) condition(
	b []byte, c *dbsqlc.MachineCondition, m *dbsqlc.Machine, seen convert.Seen,
) []byte {
	b = wireText(b, 1, c.Type)
	b = wireBool(b, 2, c.Status)
	b = wireText(b, 3, c.Reason)
	b = w.stamp(b, 4, c.LastTransition)
	b = wireText(b, 5, c.Message)
	b = wireBool(b, 6, c.Known)
	at, by := convert.Observed(c, m, seen)
	b = w.stamp(b, 7, at)
	return wireText(b, 8, by)
}

// labels reads an object of strings. A string with a bracket may be an array for all that is known, and is left to
// others.
func (w *machineProto) labels(b, doc []byte) ([]byte, bool) {
	if bytes.IndexByte(doc, '[') >= 0 {
		return b, false
	}
	ok := jsonscan.Object(doc, func(key, text []byte) bool {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(text))))
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), key)
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), text)
		return true
	})
	return b, ok
}

// stamp writes a time that is not zero.
func (w *machineProto) stamp(b []byte, field protowire.Number, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	var room [16]byte
	t = t.Truncate(time.Microsecond) // as Postgres keeps it
	in := wireNumber(room[:0], 1, uint64(t.Unix()))
	return wireMessage(b, field, wireNumber(in, 2, uint64(t.Nanosecond())))
}

func wireMessage(b []byte, field protowire.Number, in []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), in)
}

func wireText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func wireNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func wireBool(b []byte, field protowire.Number, yes bool) []byte {
	return wireNumber(b, field, protowire.EncodeBool(yes))
}

// specField is where a field of a spec goes.
type specField struct {
	number protowire.Number
	list   bool
}

// specNumbers are the fields of a spec by their names in the database.
var specNumbers = func() map[string]specField {
	fields := (&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor().Fields()
	out := map[string]specField{}
	for i := range fields.Len() {
		if f := fields.Get(i); jsonscan.SpecFields[string(f.Name())] != nil {
			out[string(f.Name())] = specField{f.Number(), f.IsList()}
		}
	}
	return out
}()

// wireSpec writes a spec, unless it has a field that is not known here.
func wireSpec(b, doc []byte) ([]byte, bool) {
	ok := jsonscan.Object(doc, func(key, text []byte) bool {
		field, known := specNumbers[string(key)]
		if !known {
			return false
		}
		if len(text) > 0 || field.list {
			b = protowire.AppendBytes(protowire.AppendTag(b, field.number, protowire.BytesType), text)
		}
		return true
	})
	return b, ok
}
