package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// The descriptors of the public API.
	_ "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// root is the top of the tree, seen from this package's directory.
const root = "../.."

// calls are the methods of all services.
func calls(t *testing.T) (out []protoreflect.MethodDescriptor) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				out = append(out, methods.Get(j))
			}
		}
		return true
	})
	if len(out) < 100 {
		t.Fatalf("found %d calls", len(out))
	}
	return out
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// protoFiles are the texts of the protos, by path.
func protoFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "api/baremetal/v1/*.proto"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("found %d protos (%v)", len(paths), err)
	}
	out := map[string]string{}
	for _, path := range paths {
		out[filepath.Base(path)] = readFile(t, path)
	}
	return out
}

var protoComment = regexp.MustCompile(`^\s*// ?(.*)$`)

// protoLines calls what with each line of a proto that is no comment, and with the comment right above it.
func protoLines(text string, what func(line, comment string)) {
	var above []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := protoComment.FindStringSubmatch(line); m != nil {
			above = append(above, m[1])
			continue
		}
		what(line, strings.Join(above, " "))
		above = nil
	}
}
