package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/internal/apijson"
	"github.com/ingot-metal/ingot/internal/failure"
)

// overGRPC makes the call as a gRPC client and returns its answers.
func (r *rig) overGRPC(ctx context.Context, b binding, in proto.Message) ([]proto.Message, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.secret)
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, b.full)
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(in); err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	var out []proto.Message
	for {
		m := newMessage(b.method.Output())
		switch err := s.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		out = append(out, m)
	}
}

// overREST makes the call over HTTP.
func (r *rig) overREST(b binding, in proto.Message) (code int, body []byte) {
	r.t.Helper()
	return r.do(b.request(r.t, r.url, in))
}

func (r *rig) do(req *http.Request) (code int, body []byte) {
	r.t.Helper()
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+r.secret)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, body
}

func decoded(t *testing.T, b binding, raw []byte) proto.Message {
	t.Helper()
	m := newMessage(b.method.Output())
	if err := apijson.Unmarshal(raw, m); err != nil {
		t.Fatalf("%s: %v in %s", b.name(), err, raw)
	}
	return m
}

// TestEveryCallIsTheSame: whatever way a call comes, the service sees one message, and the client one answer. Every
// field of every request and answer is set, every member of every oneof and every value of every enum in one variant or
// another. The command line writes the same JSON, with the same names of enums.
func TestEveryCallIsTheSame(t *testing.T) {
	r := newRig(t)
	cases := 0
	for _, b := range bindings(t) {
		if b.method.IsStreamingServer() {
			continue
		}
		ownJSON := b.method.Output().Name() == "GetNodeHistoryResponse" // see TestNodeHistoryHasItsOwnJSON
		for v := range max(variants(b.method.Input()), variants(b.method.Output())) {
			in, out := filled(b.method.Input(), v), filled(b.method.Output(), v)
			r.double.tell(nil, out)
			answers, err := r.overGRPC(t.Context(), b, in)
			if err != nil || len(answers) != 1 || !proto.Equal(answers[0], out) {
				t.Fatalf("%s over gRPC: %v %v", b.name(), answers, err)
			}
			seen := r.double.last()
			r.double.tell(nil, out)
			code, body := r.overREST(b, in)
			if code != http.StatusOK {
				t.Fatalf("%s: %d %s", b.name(), code, body)
			}
			if !proto.Equal(seen, r.double.last()) || !proto.Equal(seen, in) {
				t.Errorf("%s: the service saw over gRPC\n%v\nand over REST\n%v", b.name(), seen, r.double.last())
			}
			if ownJSON {
				cases++
				continue
			}
			if cli, err := encode.Line(out); err != nil || !bytes.Equal(cli, body) {
				t.Errorf("%s: REST writes\n%s\nand ingot -o json\n%s, %v", b.name(), body, cli, err)
			}
			if got := decoded(t, b, body); !proto.Equal(got, out) {
				t.Errorf("%s: answered\n%v\nwant\n%v", b.name(), got, out)
			}
			cases++
		}
	}
	t.Logf("%d requests and answers are equal", cases)
}

// TestEveryStreamIsTheSame: each line is one message of the stream.
func TestEveryStreamIsTheSame(t *testing.T) {
	r := newRig(t)
	refusal := failure.Aborted("SLOW_READER", "too slow").WithMeta("a", "b")
	streams := 0
	for _, b := range bindings(t) {
		if !b.method.IsStreamingServer() {
			continue
		}
		in := filled(b.method.Input(), 0)
		out := []proto.Message{filled(b.method.Output(), 0), filled(b.method.Output(), 1), filled(b.method.Output(), 2)}
		r.double.tell(refusal, out...)
		answers, err := r.overGRPC(t.Context(), b, in)
		if len(answers) != len(out) || status.Code(err) != codes.Aborted {
			t.Fatalf("%s over gRPC: %v %v", b.name(), answers, err)
		}
		seen := r.double.last()
		r.double.tell(refusal, out...)
		code, body := r.overREST(b, in)
		lines := bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
		if code != http.StatusOK || len(lines) != len(out)+1 || !proto.Equal(seen, r.double.last()) {
			t.Fatalf("%s: %d with %d lines: %s", b.name(), code, len(lines), body)
		}
		for i, want := range out {
			if got := decoded(t, b, inside(t, lines[i], "result")); !proto.Equal(got, want) {
				t.Errorf("%s: line %d is %v, want %v", b.name(), i, got, want)
			}
		}
		sameStatus(t, b.name(), inside(t, lines[len(out)], "error"), err)
		streams++
	}
	t.Logf("%d streams are equal", streams)
}

// inside takes {"key": document} apart.
func inside(t *testing.T, line []byte, key string) []byte {
	t.Helper()
	head := []byte(`{"` + key + `":`)
	if !bytes.HasPrefix(line, head) || !bytes.HasSuffix(line, []byte("}")) {
		t.Fatalf("the line is no %s: %s", key, line)
	}
	return line[len(head) : len(line)-1]
}

func sameStatus(t *testing.T, what string, body []byte, overGRPC error) {
	t.Helper()
	var got spb.Status
	if err := protojson.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v in %s", what, err, body)
	}
	if want := status.Convert(overGRPC).Proto(); !proto.Equal(&got, want) {
		t.Errorf("%s: REST says\n%v\ngRPC says\n%v", what, &got, want)
	}
}

// httpCodes is the mapping of google/rpc/code.proto.
var httpCodes = map[codes.Code]int{
	codes.InvalidArgument: 400, codes.FailedPrecondition: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403,
	codes.NotFound: 404, codes.Aborted: 409, codes.AlreadyExists: 409, codes.ResourceExhausted: 429, codes.Canceled: 499,
	codes.Internal: 500, codes.Unimplemented: 501, codes.Unavailable: 503, codes.DeadlineExceeded: 504,
}

// TestEveryErrorIsTheSame: every call with every kind of failure.
func TestEveryErrorIsTheSame(t *testing.T) {
	r := newRig(t)
	failures := []error{
		failure.NotFound("MACHINE_NOT_FOUND", `no machine "ü"`).WithMeta("machine_id", "m-1"),
		failure.Invalid("INVALID_FIELD", "two fields").WithField("spec.rack", "too long").WithField("labels[a]", "bad"),
		failure.AlreadyExists("REQUEST_ID_REUSED", "another body"), failure.Precondition("MACHINE_BUSY", "busy"),
		failure.Denied("SCOPE_TOO_SMALL", "no"), failure.Unauthenticated("BEARER_INVALID", "who?"),
		failure.Unavailable("DATABASE_UNAVAILABLE", "wait"), failure.Exhausted("RATE_LIMITED", "slower"),
		failure.Aborted("VERSION_CONFLICT", "lost"), failure.Unimplemented("STEP_KIND_NOT_WIRED", "not yet"),
		status.Error(codes.Canceled, "gone"), status.Error(codes.DeadlineExceeded, "late"),
	}
	cases := 0
	for _, b := range bindings(t) {
		in := filled(b.method.Input(), 0)
		for _, f := range failures {
			r.double.tell(f)
			_, overGRPC := r.overGRPC(t.Context(), b, in)
			code, body := r.overREST(b, in)
			if want := httpCodes[status.Code(overGRPC)]; code != want {
				t.Errorf("%s: %v is %d, want %d", b.name(), status.Code(overGRPC), code, want)
			}
			sameStatus(t, b.name(), body, overGRPC)
			cases++
		}
	}
	t.Logf("%d errors are equal", cases)
}

// An internal error has an incident number of its own each time.
func TestInternalErrorsTellNothing(t *testing.T) {
	r := newRig(t)
	b := bindings(t)[0]
	r.double.tell(errors.New("relation machines does not exist"))
	code, body := r.overREST(b, newMessage(b.method.Input()))
	if code != http.StatusInternalServerError || strings.Contains(string(body), "relation") ||
		!strings.Contains(string(body), `"reason":"INTERNAL"`) {
		t.Errorf("%d %s", code, body)
	}
}
