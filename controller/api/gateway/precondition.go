package gateway

import (
	"context"
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

// The version of a thing is its entity tag (RFC 9110, section 8.8.3): ETag goes out with it, and a write with If-Match
// is refused with 412 where the thing has another one by then.

const (
	versionField  = "version"
	expectedField = "expected_version"
	// reasonVersion is the reason of a write that has expected another version.
	reasonVersion = "VERSION_CONFLICT"
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

type ifMatchKey struct{}

// withIfMatch keeps the version of the header If-Match for the call. "*" asks for a thing of any version, which each
// write but those that make things asks for anyway.
func withIfMatch(r *http.Request) (*http.Request, *failure.Error) {
	tag := strings.TrimSpace(r.Header.Get("If-Match"))
	if tag == "" || tag == "*" {
		return r, nil
	}
	v, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
	if err != nil || v <= 0 || len(r.Header.Values("If-Match")) > 1 {
		return r, failure.Invalid(reasonInvalidField, "If-Match: %.64s is not the ETag of one version, such as \"7\"", tag)
	}
	return r.WithContext(context.WithValue(r.Context(), ifMatchKey{}, v)), nil
}

// expect puts the version of If-Match into the request of a call.
func expect(ctx context.Context, args any) error {
	v, ok := ctx.Value(ifMatchKey{}).(int64)
	if !ok {
		return nil
	}
	m, ok := args.(proto.Message)
	if !ok {
		return nil
	}
	f := m.ProtoReflect().Descriptor().Fields().ByName(expectedField)
	if f == nil {
		return failure.ToStatus(failure.Invalid(reasonInvalidField,
			"this call takes no If-Match: it writes nothing that has a version")).Err()
	}
	if have := m.ProtoReflect().Get(f).Int(); have != 0 && have != v {
		return failure.ToStatus(failure.Invalid(reasonInvalidField, "If-Match says version %d, and expected_version %d", v,
			have)).Err()
	}
	m.ProtoReflect().Set(f, protoreflect.ValueOfInt64(v))
	return nil
}

// httpStatus is the HTTP status of an error. A lost update has one of its own.
func httpStatus(st *status.Status) int {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reasonVersion &&
			st.Code() == codes.FailedPrecondition {
			return http.StatusPreconditionFailed
		}
	}
	return runtime.HTTPStatusFromCode(st.Code())
}
