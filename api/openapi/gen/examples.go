package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exampleDepth is how many messages stand in each other in an example.
const exampleDepth = 3

// words are values of strings in examples of answers, by the names of fields. Others are named after their field.
var words = map[string]string{
	"boot_id": "0b2b6a0e-4f2c-4a53-9d53-1c6b7d1f6a41", "cluster_ref": "prod-1", "digest": strings.Repeat("ab", 32),
	"group": "web", "hostname": "web-1", "image_ref": "debian-13", "mac_address": "52:54:00:12:34:56",
	"mac_addresses": "52:54:00:12:34:56", "machine_id": "m-1", "next_page_token": "", "node_id": "m-1",
	"operation_id": "op-01k9z3v5q8", "provider": "agent", "rack": "r42", "request_id": "deploy-v2.1-m-1",
	"sha256": strings.Repeat("ab", 32), "site": "dallas",
}

// historyExample is an answer in the gateway's own form.
const historyExample = `{"data": [{"id": "0b2b6a0e-4f2c-4a53-9d53-1c6b7d1f6a41", "from_state": "installing",
	"to_state": "install_failed", "triggered_by": "system", "user_id": null, "comment": null,
	"metadata": {"attempt": 1}, "created_at": "2026-11-21T13:45:00.12Z"}], "total": 1}`

// examples adds an example of each answer, as the gateway writes it, and of an error.
func examples(doc object) error {
	components := asObject(doc["components"])
	all := object{}
	components["examples"] = all
	for _, op := range operations(doc) {
		method, _ := op["x-grpc-method"].(string)
		m := named[protoreflect.MethodDescriptor](strings.Replace(strings.TrimPrefix(method, "/"), "/", ".", 1))
		if m == nil {
			return fmt.Errorf("there is no method %s", method)
		}
		value, err := exampleOf(m.Output())
		if err != nil {
			return err
		}
		name := string(m.Output().FullName())
		if m.IsStreamingServer() {
			name, value = name+".line", object{"result": value}
		}
		all[name] = object{"value": value}
		for _, media := range asObject(asObject(asObject(op["responses"])["200"])["content"]) {
			asObject(media)["examples"] = object{"answer": reference("examples", name)}
		}
	}
	responses := asObject(components["responses"])
	errorExample(asObject(responses["Error"]), "MACHINE_BUSY", "the machine has an active operation op-01k9z3v5q8",
		object{"operation_id": "op-01k9z3v5q8"})
	errorExample(asObject(responses["VersionConflict"]), "VERSION_CONFLICT", "machine m-1 has version 8, not 7",
		object{"version": "8"})
	return nil
}

func errorExample(response object, reason, message string, metadata object) {
	asObject(asObject(response["content"])[jsonType])["example"] = object{
		"code": 9, "message": message, "details": []any{object{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
			"reason": reason, "domain": "ingot.dev", "metadata": metadata}}}
}

// exampleOf returns the JSON of a message with its fields set.
func exampleOf(d protoreflect.MessageDescriptor) (out object, err error) {
	raw := []byte(historyExample)
	if d.Name() != "GetNodeHistoryResponse" {
		t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.FullName(), err)
		}
		m := t.New()
		setFields(m, exampleDepth)
		// As internal/apijson does, which tests hold against this.
		as := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
		if raw, err = as.Marshal(m.Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w", d.FullName(), err)
		}
	}
	err = json.Unmarshal(raw, &out)
	return out, err
}

// setFields sets the fields of a message, and of those in it down to a depth; of a oneof the first.
func setFields(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		oneof := f.ContainingOneof()
		if oneof != nil && oneof.Fields().Get(0) != f || depth == 0 && f.Message() != nil && !f.IsMap() {
			continue
		}
		if f.Name() == "error" || f.Name() == "deleted_at" { // not beside what has worked, and is there
			continue
		}
		switch {
		case f.IsMap():
			if f.MapValue().Kind() == protoreflect.StringKind {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString("env").MapKey(), protoreflect.ValueOfString("prod"))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			list.Append(exampleValue(f, list.NewElement, depth))
		default:
			m.Set(f, exampleValue(f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

// exampleTime is when everything in an example happened.
var exampleTime = timestamppb.New(time.Date(2026, 11, 21, 13, 45, 0, 120_000_000, time.UTC))

func exampleValue(
	f protoreflect.FieldDescriptor, blank func() protoreflect.Value, depth int,
) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		v := blank()
		switch inner := v.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			proto.Merge(inner, exampleTime)
		case *durationpb.Duration:
			inner.Seconds = 3600
		case *structpb.Struct:
		default:
			setFields(v.Message(), depth-1)
		}
		return v
	case protoreflect.StringKind:
		if word, ok := words[string(f.Name())]; ok {
			return protoreflect.ValueOfString(word)
		}
		name := strings.TrimSuffix(strings.TrimSuffix(string(f.Name()), "_id"), "_ref")
		return protoreflect.ValueOfString(strings.ReplaceAll(name, "_", "-") + "-1")
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(min(1, f.Enum().Values().Len()-1)).Number())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("{}"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(false)
	}
	return numberOf(f.Kind())
}

// numberOf returns one, as a kind of number.
func numberOf(kind protoreflect.Kind) protoreflect.Value {
	switch kind {
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	}
	return protoreflect.ValueOfInt32(1)
}
