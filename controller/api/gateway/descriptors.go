package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/failure"
)

// DescriptorsPath is where the descriptors of the API are served, without authentication: a FileDescriptorSet, as
// grpcurl and buf read it.
const DescriptorsPath = "/descriptors.binpb"

// ServiceConfigPath is where the service config of gRPC is served, without authentication: which calls a client of any
// language may send again.
const ServiceConfigPath = "/service-config.json"

// descriptors is the FileDescriptorSet of baremetal.v1, of what it imports and of the details of its errors. A file
// comes after those that it imports.
var descriptors = sync.OnceValues(func() ([]byte, error) {
	var set descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range apiFiles() {
		add(f)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&set)
})

// apiFiles are the files of the API in the order of their names, and the one with the details of its errors.
func apiFiles() []protoreflect.FileDescriptor {
	files := []protoreflect.FileDescriptor{errdetails.File_google_rpc_error_details_proto}
	own := baremetalv1.File_baremetal_v1_machine_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(own, func(f protoreflect.FileDescriptor) bool {
		files = append(files, f)
		return true
	})
	slices.SortFunc(files, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	return files
}

func (g *Gateway) serveDescriptors(w http.ResponseWriter, _ *http.Request, _ operation, _ string) {
	raw, err := descriptors()
	if err != nil {
		g.refuse(w, http.StatusInternalServerError, failure.Internal("INTERNAL", "the descriptors have no form: %v", err))
		return
	}
	w.Header().Set("Content-Type", bytesType)
	g.write(w, raw)
}

func (g *Gateway) serveServiceConfig(w http.ResponseWriter, _ *http.Request, _ operation, _ string) {
	w.Header().Set("Content-Type", jsonType)
	g.write(w, []byte(client.ServiceConfig()))
}
