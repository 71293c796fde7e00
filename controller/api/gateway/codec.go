package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/apijson"
)

const (
	jsonType = "application/json"
	// patchType is a JSON Merge Patch (RFC 7396), which a PATCH is by either type.
	patchType = "application/merge-patch+json"
	// streamType is JSON with a document a line (https://github.com/ndjson/ndjson-spec).
	streamType = "application/x-ndjson"
)

// codec is the JSON of the API for the generated handlers.
type codec struct{}

var (
	_ runtime.Marshaler         = codec{}
	_ runtime.Delimited         = codec{}
	_ runtime.StreamContentType = codec{}
)

func (codec) ContentType(any) string       { return jsonType }
func (codec) StreamContentType(any) string { return streamType }
func (codec) Delimiter() []byte            { return []byte("\n") }

// Marshal writes a message, or one line of a stream: {"result": message} or {"error": status}.
func (c codec) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case *baremetalv1.GetNodeHistoryResponse:
		return marshalHistory(v)
	case proto.Message:
		return apijson.Marshal(v)
	case map[string]any:
		return c.line(v["result"])
	case map[string]proto.Message:
		raw, err := statusJSON(v["error"])
		return wrapped("error", raw), err
	}
	return nil, fmt.Errorf("no JSON form of %T", v)
}

func (c codec) line(v any) ([]byte, error) {
	raw, err := c.Marshal(v)
	return wrapped("result", raw), err
}

func wrapped(key string, raw []byte) []byte {
	return slices.Concat([]byte(`{"`+key+`":`), raw, []byte("}"))
}

// Unmarshal reads a whole document.
func (codec) Unmarshal(raw []byte, v any) error {
	m, err := target(v)
	if err != nil {
		return err
	}
	return encodeFaults(apijson.Unmarshal(raw, m))
}

// target finds the message to read into. The handlers give a pointer to a message, or to the field that holds one.
func target(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Pointer {
		return nil, fmt.Errorf("%T is no message", v)
	}
	if p.Elem().IsNil() {
		p.Elem().Set(reflect.New(p.Elem().Type().Elem()))
	}
	return target(p.Elem().Interface())
}

func (codec) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		raw, err := codec{}.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	})
}

// NewDecoder reads everything: a body is one document. An empty one is io.EOF, which the handlers take for no fields.
func (codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		raw, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			return io.EOF
		}
		return codec{}.Unmarshal(raw, v)
	})
}

// The generated handlers keep nothing of an error but its text. So that the places of faults arrive, they are put into
// it, behind a mark that no text of a client holds: JSON and URLs have no bare NUL.
const faultMark = "\x00faults:"

func encodeFaults(err error) error {
	var faults apijson.Faults
	if !errors.As(err, &faults) {
		return err
	}
	raw, marshalErr := json.Marshal(faults)
	if marshalErr != nil {
		return err
	}
	return errors.New(faultMark + string(raw))
}

func decodeFaults(text string) (apijson.Faults, bool) {
	raw, ok := strings.CutPrefix(text, faultMark)
	if !ok {
		return nil, false
	}
	var faults apijson.Faults
	return faults, json.Unmarshal([]byte(raw), &faults) == nil
}

// query reads query parameters as the gateway does, one by one, so that an error names its parameter.
type query struct{ runtime.DefaultQueryParser }

func init() {
	// The gateway keeps its parser in a variable of its package and has no other door to it.
	runtime.NewServeMux(runtime.SetQueryParameterParser(&query{}))
}

func (q *query) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	var faults apijson.Faults
	for _, name := range sortedKeys(values) {
		if err := q.DefaultQueryParser.Parse(m, url.Values{name: values[name]}, filter); err != nil {
			faults = append(faults, apijson.Fault{Path: name, Description: err.Error()})
		}
	}
	if len(faults) > 0 {
		return encodeFaults(faults)
	}
	return nil
}
