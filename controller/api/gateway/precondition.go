package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Conditional requests (RFC 9110, section 13). A write may expect the version that was read (If-Match), or that there
// is nothing yet (If-None-Match: *): otherwise it is refused with 412. A read whose answer the client has already
// (If-None-Match) is answered with 304.
//
// The entity tag of an answer is its version, and of a read also a digest of its bytes: what a machine reports changes
// its document and not its version, which counts what clients write.

const (
	versionField    = "version"
	expectedField   = "expected_version"
	createOnlyField = "create_only"
	// reasonVersion is the reason of a write that has expected another version.
	reasonVersion = "VERSION_CONFLICT"
	// reasonReused is the only reason of ALREADY_EXISTS that is about a request, and not about a thing.
	reasonReused = "REQUEST_ID_REUSED"
	// tagDigest is how much of the digest of a document its tag has, in bytes.
	tagDigest = 12
)

// entityTag sets the header of an answer that is one thing with a version.
func entityTag(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if m == nil {
		return nil
	}
	f := m.ProtoReflect().Descriptor().Fields().ByName(versionField)
	if f == nil || f.Kind() != protoreflect.Int64Kind {
		return nil
	}
	if v := m.ProtoReflect().Get(f).Int(); v > 0 {
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(v, 10)))
	}
	return nil
}

// conditional answers a read: it adds the digest to the tag, and leaves out a document that the client has.
type conditional struct {
	*writer
	have []string
}

// Write implements http.ResponseWriter. The first write of an answer that has no head yet is the whole document.
func (c *conditional) Write(document []byte) (int, error) {
	if c.begun {
		return c.writer.Write(document)
	}
	sum := sha256.Sum256(document)
	tag := hex.EncodeToString(sum[:tagDigest])
	if version := strings.Trim(c.Header().Get("ETag"), `"`); version != "" {
		tag = version + "." + tag
	}
	tag = strconv.Quote(tag)
	c.Header().Set("ETag", tag)
	if !matches(c.have, tag) {
		return c.writer.Write(document)
	}
	c.Header().Del("Content-Length")
	c.WriteHeader(http.StatusNotModified)
	return len(document), nil
}

// matches compares the tags of If-None-Match with one, weakly (RFC 9110, section 13.1.2).
func matches(headers []string, tag string) bool {
	for _, h := range headers {
		for have := range strings.SplitSeq(h, ",") {
			if have = strings.TrimPrefix(strings.TrimSpace(have), "W/"); have == "*" || have == tag {
				return true
			}
		}
	}
	return false
}

type preconditionKey struct{}

// precondition is what a write expects of the thing that it writes.
type precondition struct {
	// version is the one that is stored; 0 is any.
	version int64
	// exists is true where there must be a thing of any version; absent where there must be none.
	exists, absent bool
}

// withPreconditions keeps the conditions of a write for its call.
func withPreconditions(r *http.Request) (*http.Request, *failure.Error) {
	var p precondition
	var err *failure.Error
	if p.version, p.exists, err = ifMatch(r.Header.Values("If-Match")); err != nil {
		return r, err
	}
	if none := strings.Join(r.Header.Values("If-None-Match"), ","); none != "" && !isRead(r) {
		if strings.TrimSpace(none) != "*" {
			return r, failure.Invalid(reasonInvalidField, "If-None-Match of a write is *: there must be no such thing yet")
		}
		p.absent = true
	}
	if p == (precondition{}) {
		return r, nil
	}
	return r.WithContext(context.WithValue(r.Context(), preconditionKey{}, p)), nil
}

// ifMatch reads the version of a tag: what stands before the digest.
func ifMatch(headers []string) (version int64, exists bool, _ *failure.Error) {
	tag := strings.TrimSpace(strings.Join(headers, ","))
	if tag == "" || tag == "*" {
		return 0, tag == "*", nil
	}
	text, digest, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(tag, `"`), `"`), ".")
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version <= 0 || strings.ContainsAny(digest, `",`) {
		return 0, false, failure.Invalid(reasonInvalidField, "If-Match: %.64s is not the ETag of one version, such as \"7\"",
			tag)
	}
	return version, false, nil
}

// expect puts the conditions of a write into the request of its call.
func expect(ctx context.Context, args any) error {
	p, ok := ctx.Value(preconditionKey{}).(precondition)
	m, is := args.(proto.Message)
	if !ok || !is {
		return nil
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	if err := p.into(m.ProtoReflect(), fields.ByName(expectedField), fields.ByName(createOnlyField)); err != nil {
		return failure.ToStatus(err).Err()
	}
	return nil
}

func (p precondition) into(m protoreflect.Message, expected, createOnly protoreflect.FieldDescriptor) *failure.Error {
	switch {
	case (p.version != 0 || p.exists) && expected == nil:
		return failure.Invalid(reasonInvalidField, "this call takes no If-Match: it writes nothing that has a version")
	case p.exists && createOnly != nil:
		return failure.Invalid(reasonInvalidField, "this call takes no If-Match: *, since it may make the thing: "+
			"send the version that was read")
	case p.absent && createOnly == nil:
		return failure.Invalid(reasonInvalidField, "this call takes no If-None-Match: it makes nothing that may be there")
	case p.absent && p.version != 0:
		return failure.Invalid(reasonInvalidField, "If-Match and If-None-Match contradict each other")
	}
	if p.absent {
		m.Set(createOnly, protoreflect.ValueOfBool(true))
	}
	if p.version == 0 {
		return nil
	}
	if have := m.Get(expected).Int(); have != 0 && have != p.version {
		return failure.Invalid(reasonInvalidField, "If-Match says version %d, and expected_version %d", p.version, have)
	}
	m.Set(expected, protoreflect.ValueOfInt64(p.version))
	return nil
}

// httpStatus is the HTTP status of an error. What the conditions of a write refuse has one of its own.
func httpStatus(ctx context.Context, st *status.Status) int {
	p, _ := ctx.Value(preconditionKey{}).(precondition)
	reason := ""
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	lost := reason == reasonVersion && st.Code() == codes.FailedPrecondition
	if lost || p.absent && st.Code() == codes.AlreadyExists && reason != reasonReused {
		return http.StatusPreconditionFailed
	}
	return runtime.HTTPStatusFromCode(st.Code())
}
