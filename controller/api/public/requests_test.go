package public_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/apijson"
	"github.com/ingot-metal/ingot/internal/failure"
)

var updateRequests = flag.Bool("update-requests", false, "write api/openapi/gen/requests.json anew")

// requestsFile describes requests for the OpenAPI document.
const requestsFile = "../../../api/openapi/gen/requests.json"

// described is a call's line of that file: the fields that it is refused without, and a request that is well formed.
type described struct {
	Call     string          `json:"call"`
	Required []string        `json:"required,omitempty"`
	Example  json.RawMessage `json:"example,omitempty"`
}

// TestRequestsAreDescribedAsTheyAreTaken holds that the OpenAPI document calls required what the server refuses when it
// is absent, and that its examples are taken. It sends each call without any field, fills what the refusal names until
// there is none, and then leaves out each of them alone.
func TestRequestsAreDescribedAsTheyAreTaken(t *testing.T) {
	t.Parallel()
	p := prober{t, publictest.NewRig(t)}
	var out []string
	for _, m := range methods(t) {
		raw, err := json.Marshal(p.describe(m))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	got := "[\n" + strings.Join(out, ",\n") + "\n]\n"
	if *updateRequests {
		if err := os.WriteFile(requestsFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(requestsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for _, line := range strings.Split(got, "\n") {
		if !slices.Contains(lines, line) {
			t.Errorf("the server takes %s, which is not in %s: run the test with -update-requests, then make generate", line,
				requestsFile)
		}
	}
	if len(lines) != len(out)+3 {
		t.Errorf("%s has %d lines for %d calls", requestsFile, len(lines), len(out))
	}
}

// methods returns all methods but those whose clients stream, by name.
func methods(t *testing.T) (out []protoreflect.MethodDescriptor) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			all := f.Services().Get(i).Methods()
			for j := range all.Len() {
				if m := all.Get(j); !m.IsStreamingClient() {
					out = append(out, m)
				}
			}
		}
		return true
	})
	slices.SortFunc(out, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
	return out
}

type prober struct {
	t *testing.T
	r *rig
}

// describe finds what a call is refused without.
func (p prober) describe(m protoreflect.MethodDescriptor) described {
	d := described{Call: string(m.Parent().Name()) + "." + string(m.Name())}
	q := newMessage(p.t, m.Input())
	tried := map[string]bool{}
	for range 40 {
		missing := p.faults(m, q)
		maps.DeleteFunc(missing, func(path string, _ string) bool { return tried[path] || !at(q, path, isEmpty) })
		if len(missing) == 0 {
			break
		}
		for path := range missing {
			tried[path] = true
			at(q, path, fill)
		}
	}
	p.richer(m, d.Call, q)
	for _, path := range slices.Sorted(maps.Keys(tried)) {
		without := proto.Clone(q)
		at(without, path, empty)
		if _, refused := p.faults(m, without)[path]; refused && !p.hasOther(m, without, path) && !pairs[d.Call+" "+path] {
			d.Required = append(d.Required, path)
		}
	}
	left := p.faults(m, q)
	maps.DeleteFunc(left, func(path string, _ string) bool { return secrets[path] })
	if len(left) > 0 {
		p.t.Errorf("%s: the example is refused: %v", d.Call, left)
	}
	d.Example = p.jsonOf(q)
	return d
}

// richer sets fields that an example shows though they are not required.
func (p prober) richer(m protoreflect.MethodDescriptor, call string, q proto.Message) {
	text, ok := shown[call]
	if !ok {
		return
	}
	more := newMessage(p.t, m.Input())
	if err := apijson.Unmarshal([]byte(text), more); err != nil {
		p.t.Fatalf("%s: %v", call, err)
	}
	more.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		q.ProtoReflect().Clear(f)
		return true
	})
	proto.Merge(q, more)
}

// jsonOf writes the fields that are set; nil where none is.
func (p prober) jsonOf(q proto.Message) json.RawMessage {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(q)
	var b bytes.Buffer
	if err := errors.Join(err, json.Compact(&b, raw)); err != nil {
		p.t.Fatal(err)
	}
	if b.String() == "{}" {
		return nil
	}
	return b.Bytes()
}

// hasOther reports whether a call is taken without a field where one of its neighbours is set in its place.
func (p prober) hasOther(m protoreflect.MethodDescriptor, without proto.Message, path string) bool {
	dot := strings.LastIndexByte(path, '.')
	found := false
	at(without, path, func(around protoreflect.Message, _ protoreflect.FieldDescriptor) bool {
		for i := range around.Descriptor().Fields().Len() {
			f := around.Descriptor().Fields().Get(i)
			other := path[:dot+1] + string(f.Name())
			if found || around.Has(f) || f.IsMap() || other == path {
				continue
			}
			q := proto.Clone(without)
			at(q, other, fill)
			found = len(p.faults(m, q)) == 0
		}
		return true
	})
	return found
}

// faults sends a call, and returns what its refusal as INVALID_ARGUMENT names, with its words.
func (p prober) faults(m protoreflect.MethodDescriptor, q proto.Message) map[string]string {
	ctx := p.t.Context()
	if m.IsStreamingServer() { // one that is accepted may have nothing to send
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
	}
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	s, err := p.r.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err == nil {
		err = errors.Join(s.SendMsg(q), s.CloseSend())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	err = s.RecvMsg(newMessage(p.t, m.Output()))
	e := failure.From(err)
	if err == nil || errors.Is(err, io.EOF) || e.Kind != failure.KindInvalid {
		return nil
	}
	out := map[string]string{}
	for _, f := range e.Fields {
		out[f.Path] = f.Description
	}
	if len(out) == 0 {
		p.t.Errorf("%s: %v names no field", m.Name(), err)
	}
	return out
}

var element = regexp.MustCompile(`^(.*)\[(\d+)\]$`)

// at calls a function with a field and the message that has it. It reports false where no such field is, or may be.
func at(q proto.Message, path string, do func(protoreflect.Message, protoreflect.FieldDescriptor) bool) bool {
	m := q.ProtoReflect()
	words := strings.Split(path, ".")
	for i, word := range words {
		index := -1
		if parts := element.FindStringSubmatch(word); parts != nil {
			word = parts[1]
			index, _ = strconv.Atoi(parts[2])
		}
		f := m.Descriptor().Fields().ByName(protoreflect.Name(word))
		switch {
		case f == nil || f.IsMap():
			return false
		case i == len(words)-1:
			return index < 0 && do(m, f)
		case f.Message() == nil:
			return false
		case index < 0:
			m = m.Mutable(f).Message()
		case index < m.Get(f).List().Len():
			m = m.Get(f).List().Get(index).Message()
		default:
			return false
		}
	}
	return false
}

func isEmpty(m protoreflect.Message, f protoreflect.FieldDescriptor) bool { return !m.Has(f) }

func empty(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	m.Clear(f)
	return true
}

func fill(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	switch {
	case f.IsList() && f.Message() != nil:
		m.Mutable(f).List().AppendMutable()
	case f.IsList():
		m.Mutable(f).List().Append(value(f))
	case f.Message() != nil:
		m.Mutable(f)
	default:
		m.Set(f, value(f))
	}
	return true
}

// pairs are fields that a call is refused without, but where two others stand in their place.
var pairs = map[string]bool{"ClusterService.SetCluster bearer_token": true}

// secrets are fields whose examples are cut short: the server refuses them.
var secrets = map[string]bool{"ca_pem": true, "private_key": true}

// shown are fields of examples that are not required, or that need more than one value.
var shown = map[string]string{
	"MachineService.RegisterMachine": `{"machine": {"machine_id": "m-1", "labels": {"env": "prod"},
		"spec": {"mac_addresses": ["52:54:00:12:34:56"], "provider": "fake", "rack": "r42"}}}`,
	"MachineService.UpdateMachine": `{"machine": {"machine_id": "m-1", "labels": {"env": "test"},
		"spec": {"rack": "r43"}}}`,
	"MachineService.ReconfigureMachine": `{"machine_id": "m-1", "config": {"hostname": "web-1"}}`,
	"MachineService.ReimageMachine":     `{"image_ref": "debian-13", "seed": {"user_data": "#cloud-config\n"}}`,
	"NodeService.UpdateNode":            `{"group": "web", "update_mask": "group"}`,
	"PlanService.CreatePlan": `{"plan": {"plan_id": "plan/mine",
		"steps": [{"name": "restart", "reboot": {}}]}}`,
	"RolloutService.CreateRollout":  `{"spec": {"filter": "labels.env=prod", "type": "REBOOT"}}`,
	"RolloutService.PreviewRollout": `{"spec": {"filter": "labels.env=prod", "type": "REBOOT"}}`,
}

// samples are values of strings that have a form, by the field's name.
var samples = map[string]string{
	"api_key": "consumer:token:secret", "ca_pem": "-----BEGIN CERTIFICATE-----…", "comment": "replaced the board",
	"content": "#!/bin/sh\n", "digest": strings.Repeat("ab", 32), "domain": "fleet",
	"endpoint": "http://maas.example:5240/MAAS", "filter": "site=dallas", "flag": "RMA", "level": "network",
	"mac_address": "52:54:00:12:34:56", "machine_id": "m-1", "networks": "192.0.2.0/28", "node_id": "m-1",
	"private_key": "-----BEGIN OPENSSH PRIVATE KEY-----…", "request_id": "deploy-v2.1-m-1", "role": "viewer",
	"scope": "read", "server": "https://192.0.2.1:6443", "sha256": strings.Repeat("ab", 32), "site": "dallas",
	"text": "52:54", "type": "REBOOT", "url": "https://files.invalid/ingot", "verdict": "happened",
}

func value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(string(f.Name()))))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	}
	return protoreflect.ValueOfInt32(1)
}

func text(name string) string {
	if s, ok := samples[name]; ok {
		return s
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "_id"), "_ref")
	return strings.ReplaceAll(name, "_", "-") + "-1"
}
