package query

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

// ReadMask is the tree of fields that a read returns. A field without fields of its own is returned whole; so is
// everything by the nil mask.
type ReadMask map[protoreflect.Name]ReadMask

// mostPaths is how many paths a mask may have: more than Machine has fields.
const mostPaths = 256

// ParseReadMask checks a mask of machines. The id, the version and the mark of a tombstone belong to every mask: the
// next write names them.
func ParseReadMask(in *fieldmaskpb.FieldMask) (ReadMask, error) {
	if len(in.GetPaths()) == 0 {
		return nil, nil
	}
	if n := len(in.GetPaths()); n > mostPaths {
		return nil, validate.Fault("read_mask", "%d paths; at most %d", n, mostPaths)
	}
	for _, path := range in.GetPaths() {
		if _, err := fieldmaskpb.New(&baremetalv1.Machine{}, path); err != nil {
			return nil, validate.Fault("read_mask", "Machine has no field %.64q", path)
		}
	}
	mask := fieldmaskpb.FieldMask{Paths: append([]string{"machine_id", "version", "deleted_at"}, in.GetPaths()...)}
	mask.Normalize()
	out := ReadMask{}
	for _, path := range mask.GetPaths() {
		at := out
		for name := range strings.SplitSeq(path, ".") {
			if at[protoreflect.Name(name)] == nil {
				at[protoreflect.Name(name)] = ReadMask{}
			}
			at = at[protoreflect.Name(name)]
		}
	}
	return out, nil
}

// Prune clears the fields that the mask does not name. Lists come sealed (machinestore.MachineFilter): their fields are
// there once they have been on the wire.
func (r ReadMask) Prune(machines ...*baremetalv1.Machine) error {
	for _, m := range machines {
		if r == nil || m == nil {
			continue
		}
		raw, err := proto.Marshal(m)
		if err == nil {
			err = proto.Unmarshal(raw, m)
		}
		if err != nil {
			return fmt.Errorf("open machine %s: %w", m.GetMachineId(), err)
		}
		r.pruneMessage(m.ProtoReflect())
	}
	return nil
}

func (r ReadMask) pruneMessage(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch inner, named := r[f.Name()]; {
		case !named:
			m.Clear(f)
		case len(inner) > 0:
			inner.pruneMessage(v.Message())
		}
		return true
	})
}
