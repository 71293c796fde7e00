package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestTheVersionOfAThingIsItsEntityTag(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if err := entityTag(t.Context(), w, &pb.Machine{Version: 7}); err != nil || w.Header().Get("ETag") != `"7"` {
		t.Errorf("a machine of version 7 has the tag %q, %v", w.Header().Get("ETag"), err)
	}
	w = httptest.NewRecorder()
	if err := entityTag(t.Context(), w, &pb.ListMachinesResponse{}); err != nil || w.Header().Get("ETag") != "" {
		t.Errorf("a list has the tag %q, %v", w.Header().Get("ETag"), err)
	}
	if code := httpStatus(t.Context(), failure.ToStatus(failure.Precondition("VERSION_CONFLICT",
		"changed"))); code != http.StatusPreconditionFailed {
		t.Errorf("a lost update is %d", code)
	}
	if code := httpStatus(
		t.Context(),
		failure.ToStatus(failure.Precondition("MACHINE_BUSY", "busy")),
	); code != http.StatusBadRequest {
		t.Errorf("a busy machine is %d", code)
	}
}

// expected returns what the conditions of a request put into a call; bad is true where they are refused.
func expected[M proto.Message](t *testing.T, in M, headers ...string) (_ M, bad bool) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/api/v1/machines/m-1", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r, refusal := withPreconditions(r)
	if refusal != nil {
		return in, true
	}
	err := expect(r.Context(), in)
	if err != nil && status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v is refused with %v", headers, err)
	}
	return in, err != nil
}

func TestIfMatchIsTheVersionThatAWriteExpects(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int64{"": 0, "*": 0, `"7"`: 7, "7": 7, `"7.0a1b"`: 7, `"x"`: -1, `"0"`: -1,
		`W/"7"`: -1, `"7", "8"`: -1, `"7.a","8"`: -1, `"-7"`: -1} {
		in, bad := expected(t, &pb.UpdateMachineRequest{}, "If-Match", header)
		if bad != (want < 0) || !bad && in.GetExpectedVersion() != want {
			t.Errorf("If-Match: %s expects version %d, refused: %t", header, in.GetExpectedVersion(), bad)
		}
	}
	if _, bad := expected(t, &pb.UpdateMachineRequest{ExpectedVersion: 8}, "If-Match", `"7"`); !bad {
		t.Error("two versions are taken")
	}
	for _, tag := range []string{`"7"`, "*"} {
		if _, bad := expected(t, &pb.RebootMachineRequest{}, "If-Match", tag); !bad {
			t.Errorf("a call that writes nothing versioned takes If-Match: %s", tag)
		}
	}
	if _, bad := expected(t, &pb.SetBudgetRequest{}, "If-Match", "*"); !bad {
		t.Error("If-Match: * is taken where the call would make the thing")
	}
}

func TestIfNoneMatchOfAWriteAsksForNoSuchThing(t *testing.T) {
	t.Parallel()
	if in, bad := expected(t, &pb.SetBudgetRequest{}, "If-None-Match", "*"); bad || !in.GetCreateOnly() {
		t.Errorf("create_only is %t, refused: %t", in.GetCreateOnly(), bad)
	}
	for name, bad := range map[string]func() bool{
		"a tag":       func() bool { _, bad := expected(t, &pb.SetBudgetRequest{}, "If-None-Match", `"7"`); return bad },
		"of a change": func() bool { _, bad := expected(t, &pb.UpdateMachineRequest{}, "If-None-Match", "*"); return bad },
		"with If-Match": func() bool {
			_, bad := expected(t, &pb.SetBudgetRequest{}, "If-None-Match", "*", "If-Match", `"7"`)
			return bad
		},
	} {
		if !bad() {
			t.Errorf("If-None-Match %s is taken", name)
		}
	}
	absent := context.WithValue(t.Context(), preconditionKey{}, precondition{absent: true})
	for reason, want := range map[string]int{"ALREADY_EXISTS": http.StatusPreconditionFailed,
		reasonReused: http.StatusConflict} {
		if got := httpStatus(absent, failure.ToStatus(failure.AlreadyExists(reason, "there is one"))); got != want {
			t.Errorf("%s is %d under If-None-Match: *", reason, got)
		}
	}
}

// TestAReadIsNotRepeated: the tag of a document changes with its bytes, though its version stays, and one that the client
// has is not sent again.
func TestAReadIsNotRepeated(t *testing.T) {
	t.Parallel()
	read := func(document, version string, have ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		c := &conditional{&writer{ResponseWriter: w}, have}
		c.Header().Set("ETag", version)
		c.Header().Set("Content-Length", strconv.Itoa(len(document)))
		if n, err := c.Write([]byte(document)); n != len(document) || err != nil {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
		return w
	}
	first := read("{}", `"7"`)
	tag := first.Header().Get("ETag")
	if first.Code != http.StatusOK || first.Body.String() != "{}" || !strings.HasPrefix(tag, `"7.`) {
		t.Fatalf("%d %q has the tag %s", first.Code, first.Body, tag)
	}
	for name, have := range map[string]string{"it": tag, "it, weakly": "W/" + tag, "it among others": `"1", ` + tag,
		"any": "*"} {
		if w := read("{}", `"7"`, have); w.Code != http.StatusNotModified || w.Body.Len() != 0 ||
			w.Header().Get("ETag") != tag || w.Header().Get("Content-Length") != "" {
			t.Errorf("who has %s gets %d %q %v", name, w.Code, w.Body, w.Header())
		}
	}
	for name, have := range map[string]string{"the version alone": `"7"`, "another": `"8.00"`, "none": ""} {
		if w := read("{}", `"7"`, have); w.Code != http.StatusOK || w.Body.String() != "{}" {
			t.Errorf("who has %s gets %d %q", name, w.Code, w.Body)
		}
	}
	if other := read("{ }", `"7"`, tag); other.Code != http.StatusOK || other.Header().Get("ETag") == tag {
		t.Errorf("another document of the same version is %d with the tag %s", other.Code, other.Header().Get("ETag"))
	}
	if list := read("[]", ""); len(list.Header().Get("ETag")) != 2+2*tagDigest {
		t.Errorf("a list has the tag %s", list.Header().Get("ETag"))
	}
}
