package gateway_test

import (
	"io"
	"net/http"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/controller/api/gateway"
)

// head is an answer without its body.
type head struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

// answer returns the whole of an answer.
func (r *rig) answer(req *http.Request) (head, []byte) {
	r.t.Helper()
	resp, err := r.client.Do(r.withToken(req))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return head{resp.StatusCode, resp.Header, resp.ContentLength}, body
}

// TestOptionsNamesTheMethods of a path, to anybody, and asks nothing of the service. It lets no other site's page in.
func TestOptionsNamesTheMethods(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/api/v1/machines":              "GET, HEAD, OPTIONS, POST",
		"/api/v1/machines/m-1":          "DELETE, GET, HEAD, OPTIONS, PATCH, PUT",
		"/api/v1/operation-events":      "GET, OPTIONS",
		gateway.UploadPath + "debian":   "OPTIONS, PUT",
		gateway.TargetsPath:             "GET, HEAD, OPTIONS",
		gateway.DocumentPath:            "GET, HEAD, OPTIONS",
		"/api/v1/machines/m-1%2F2/test": "OPTIONS, POST",
	} {
		resp, body := r.answer(r.request(http.MethodOptions, path, "", "Authorization", "none", "Origin",
			"https://evil.example", "Access-Control-Request-Method", "GET"))
		if resp.StatusCode != http.StatusNoContent || len(body) > 0 || resp.Header.Get("Allow") != want {
			t.Errorf("%s: %d, Allow: %s, not %s", path, resp.StatusCode, resp.Header.Get("Allow"), want)
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s lets another site in", path)
		}
	}
	if r.double.last() != nil {
		t.Errorf("the service saw %v", r.double.last())
	}
}

// TestHeadIsGetWithoutItsBody, and a document that the client has is not sent again.
func TestHeadIsGetWithoutItsBody(t *testing.T) {
	r := newRig(t)
	r.double.tell(nil, &pb.Machine{MachineId: "m-1", Version: 7})
	get, document := r.answer(r.request(http.MethodGet, "/api/v1/machines/m-1", ""))
	again, none := r.answer(r.request(http.MethodHead, "/api/v1/machines/m-1", ""))
	tag := get.Header.Get("ETag")
	if again.StatusCode != http.StatusOK || len(none) > 0 || tag == "" || again.Header.Get("ETag") != tag ||
		again.ContentLength != get.ContentLength || int(again.ContentLength) != len(document) {
		t.Errorf("HEAD is %d with %v, GET had %v", again.StatusCode, again.Header, get.Header)
	}
	if again, body := r.answer(
		r.request(http.MethodGet, "/api/v1/machines/m-1", "", "If-None-Match", tag),
	); len(body) > 0 ||
		again.StatusCode != http.StatusNotModified ||
		again.Header.Get("ETag") != tag {
		t.Errorf("who has it gets %d %s", again.StatusCode, body)
	}
	if refused, _ := r.answer(r.request(http.MethodHead, "/api/v1/machines/m-1?colour=red", "")); refused.StatusCode !=
		http.StatusBadRequest {
		t.Errorf("HEAD with an unknown parameter is %d", refused.StatusCode)
	}
}

// TestPatchIsAMergePatch: UpdateMachine gets a mask of the members of the body, in which null clears a field. A mask in
// the query replaces it, and a repeated member is refused.
func TestPatchIsAMergePatch(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		query, body string
		want        *pb.UpdateMachineRequest
	}{
		"fields":            {body: `{"spec": {"rack": "r1", "imageless": null, "macAddresses": [], "customer_id": null}}`},
		"a repeated member": {body: `{"spec": {"rack": "r1"}, "spec": {"rack": "r2"}}`},
		"a repeated label":  {body: `{"labels": {"env": "a", "env": "b"}}`},
		"set and clear": {
			body: `{"machine_id": "m", "version": "3", "spec": {"rack": "r1", "macAddresses": [], "customer_id": null}}`,
			want: &pb.UpdateMachineRequest{
				Machine:    &pb.Machine{MachineId: "m", Version: 3, Spec: &pb.MachineSpec{Rack: "r1"}},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.customer_id", "spec.mac_addresses", "spec.rack"}},
			},
		},
		"one label": {
			body: `{"labels": {"env": "prod", "row": null}}`,
			want: &pb.UpdateMachineRequest{
				Machine:    &pb.Machine{MachineId: "m", Labels: map[string]string{"env": "prod"}},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels.env", "labels.row"}},
			},
		},
		"all labels": {
			body: `{"labels": null}`,
			want: &pb.UpdateMachineRequest{
				Machine:    &pb.Machine{MachineId: "m"},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			},
		},
		"a mask": {
			query: "?update_mask=labels&validate_only=true", body: `{"spec": {"rack": "r1"}}`,
			want: &pb.UpdateMachineRequest{
				Machine:      &pb.Machine{MachineId: "m", Spec: &pb.MachineSpec{Rack: "r1"}},
				UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
				ValidateOnly: true,
			},
		},
		"nothing": {body: `{}`, want: &pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m"}}},
	} {
		for _, kind := range []string{"application/json", "application/merge-patch+json; charset=utf-8"} {
			r.double.tell(nil, &pb.Machine{})
			code, answer := r.do(r.request(http.MethodPatch, "/api/v1/machines/m"+c.query, c.body, "Content-Type", kind))
			switch saw := r.double.last(); {
			case c.want == nil:
				if code != http.StatusBadRequest || saw != nil {
					t.Errorf("%s as %s: %d %s, the service saw %v", name, kind, code, answer, saw)
				}
			case code != http.StatusOK || !proto.Equal(saw, c.want):
				t.Errorf("%s as %s: %d %s, the service saw %v, not %v", name, kind, code, answer, saw, c.want)
			}
		}
	}
}

// TestOnlyPatchTakesMergePatches: a PUT with that type would be taken for one. OPTIONS names the types of a PATCH.
func TestOnlyPatchTakesMergePatches(t *testing.T) {
	r := newRig(t)
	const merge = "application/merge-patch+json"
	code, answer := r.do(r.request(http.MethodPut, "/api/v1/machines/m", `{}`, "Content-Type", merge))
	if code != http.StatusUnsupportedMediaType || r.double.last() != nil {
		t.Errorf("%d %s", code, answer)
	}
	for path, want := range map[string]string{"/api/v1/machines/m": merge + ", application/json", "/api/v1/machines": ""} {
		resp, _ := r.answer(r.request(http.MethodOptions, path, ""))
		if got := resp.Header.Get("Accept-Patch"); got != want {
			t.Errorf("%s: Accept-Patch: %s", path, got)
		}
	}
}

// TestTheServiceConfigIsServed as the Go client has it; gRPC takes it.
func TestTheServiceConfigIsServed(t *testing.T) {
	r := newRig(t)
	resp, raw := r.answer(r.request(http.MethodGet, gateway.ServiceConfigPath, "", "Authorization", "none"))
	if resp.StatusCode != http.StatusOK || string(raw) != client.ServiceConfig() ||
		resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d, %s: %.100s", resp.StatusCode, resp.Header.Get("Content-Type"), raw)
	}
}

// TestTheDescriptorsAreTheAPI: a client that knows nothing else finds every call, and the details of errors.
func TestTheDescriptorsAreTheAPI(t *testing.T) {
	r := newRig(t)
	resp, raw := r.answer(r.request(http.MethodGet, gateway.DescriptorsPath, "", "Authorization", "none"))
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings(t) {
		if d, err := files.FindDescriptorByName(b.method.FullName()); err != nil {
			t.Errorf("%s: %v, %v", b.method.FullName(), d, err)
		}
	}
	for _, m := range []proto.Message{&errdetails.ErrorInfo{}, &errdetails.BadRequest{}, &errdetails.RetryInfo{}} {
		name := m.ProtoReflect().Descriptor().FullName()
		if d, err := files.FindDescriptorByName(name); err != nil || d.(protoreflect.MessageDescriptor) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, err := files.FindDescriptorByName("baremetal.v1.Reason"); err != nil {
		t.Errorf("the reasons: %v, %v", d, err)
	}
}
