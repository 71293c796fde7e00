// Package apijson is the JSON form of the API's messages, as the command line and the HTTP gateway have it: protojson
// with the names of the .proto files, and the effective state MAINTENANCE_IDLE written MAINTENANCE.
package apijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// marshal keeps false, zero and empty lists, so that a script finds the same fields in every answer.
var marshal = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// Marshal is the message as JSON on one line without its newline. Times are RFC 3339, 64-bit integers are strings,
// bytes are base64.
func Marshal(m proto.Message) ([]byte, error) {
	line, err := compact(m)
	if err != nil || !bytes.Contains(line, []byte(maintenanceIdle)) {
		return line, err
	}
	if line, err = compact(markMaintenance(m)); err != nil {
		return nil, err
	}
	return unmarkMaintenance(line), nil
}

func compact(m proto.Message) ([]byte, error) {
	raw, err := marshal.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	var b bytes.Buffer
	// protojson varies its white space on purpose.
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("compact JSON: %w", err)
	}
	return b.Bytes(), nil
}

const (
	maintenanceIdle = "MAINTENANCE_IDLE"
	maintenance     = "MAINTENANCE"
	// maintenanceMark stands in for MAINTENANCE_IDLE until the text is written. As a number it cannot be taken for
	// a label that happens to be called effective_state.
	maintenanceMark = 90_000_004
)

func markMaintenance(m proto.Message) proto.Message {
	m = proto.Clone(m)
	// The walk only fails when the callback does, and it never does.
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if status, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok {
			if s, ok := status.Interface().(*pb.MachineStatus); ok && s.EffectiveState == pb.MachineStatus_MAINTENANCE_IDLE {
				s.EffectiveState = maintenanceMark
			}
		}
		return nil
	})
	return m
}

func unmarkMaintenance(line []byte) []byte {
	return bytes.ReplaceAll(line, []byte(`"effective_state":`+strconv.Itoa(maintenanceMark)),
		[]byte(`"effective_state":"`+maintenance+`"`))
}
