// Package encode writes messages of the API as JSON and YAML, as `ingot -o json` and `-o yaml` print them.
package encode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/apijson"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// Line is the message as JSON on one line without its newline. Unsafe characters of strings are escaped.
func Line(m proto.Message) ([]byte, error) {
	line, err := apijson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return safetext.Quoted(line), nil
}

// JSON is the message as indented JSON with a newline: protojson with the names of the .proto files and
// RFC 3339 times. The effective state MAINTENANCE_IDLE is written MAINTENANCE. Bytes that are documented as
// JSON (an inventory, an audit row) or text (a log chunk) are written as what they are, not as base64.
func JSON(m proto.Message) ([]byte, error) {
	line, err := Decoded(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, line, "", "  "); err != nil {
		return nil, fmt.Errorf("indent JSON: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// Decoded is Line with JSON and text that the message carries as bytes written out.
func Decoded(m proto.Message) ([]byte, error) {
	line, err := Line(m)
	if err != nil {
		return nil, err
	}
	var field string
	switch m.(type) {
	case *pb.Inventory:
		field = "document"
	case *pb.ListAuditLogResponse, *pb.AuditEntry:
		field = "event_data"
	case *pb.LogChunk:
		field = "data"
	default:
		return line, nil
	}
	return decodeBytes(line, field)
}

func decodeBytes(line []byte, field string) ([]byte, error) {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read back JSON: %w", err)
	}
	out, err := json.Marshal(replaceBytes(tree, field))
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return safetext.Quoted(out), nil
}

func replaceBytes(tree any, field string) any {
	switch t := tree.(type) {
	case []any:
		for i := range t {
			t[i] = replaceBytes(t[i], field)
		}
	case map[string]any:
		for k, v := range t {
			text, isText := v.(string)
			if k == field && isText {
				t[k] = plain(text)
			} else {
				t[k] = replaceBytes(v, field)
			}
		}
	}
	return tree
}

// plain returns the JSON value that the base64 text holds, or its text when it isn't JSON.
func plain(text string) any {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return text
	}
	first := bytes.TrimLeft(raw, " \t\r\n")
	if len(first) > 0 && slices.Contains([]byte("{["), first[0]) && json.Valid(raw) {
		return json.RawMessage(raw)
	}
	return string(raw)
}
