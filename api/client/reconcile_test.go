package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// lister answers ListMachines in the order of its script. Only what a restore of the database does cannot be had from a
// controller in a moment; lab/e2e/clients has one for the rest.
type lister struct {
	t      *testing.T
	script []answer
}

type answer struct {
	cursor, token string // what the request must have
	page          *baremetalv1.ListMachinesResponse
	err           error
}

func (l *lister) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	l.t.Helper()
	r := args.(*baremetalv1.ListMachinesRequest)
	if len(l.script) == 0 {
		l.t.Fatalf("one request too many: %v", r)
	}
	next := l.script[0]
	l.script = l.script[1:]
	if r.GetCursor() != next.cursor || r.GetPageToken() != next.token {
		l.t.Errorf(
			"asked for cursor %q and page %q, want %q and %q",
			r.GetCursor(),
			r.GetPageToken(),
			next.cursor,
			next.token,
		)
	}
	proto.Merge(reply.(proto.Message), next.page)
	return next.err
}

func (l *lister) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no stream is asked for")
}

func page(cursor, token string, ids ...string) *baremetalv1.ListMachinesResponse {
	p := &baremetalv1.ListMachinesResponse{NextCursor: cursor, NextPageToken: token}
	for _, id := range ids {
		id, gone := strings.CutPrefix(id, "-")
		m := &baremetalv1.Machine{MachineId: id}
		if gone {
			m.DeletedAt = timestamppb.Now()
		}
		p.Machines = append(p.Machines, m)
	}
	return p
}

// TestReconcilerAfterARestore: a cursor that a restore has ended is followed by a walk, after which the copy equals the
// fleet. A change that could not be applied comes again.
func TestReconcilerAfterARestore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cursor")
	have := map[string]bool{}
	var broken error
	pass := func(script ...answer) error {
		l := &lister{t, script}
		r := client.Reconciler{Conn: l, CursorFile: file,
			Apply: func(_ context.Context, m *baremetalv1.Machine) error {
				have[m.GetMachineId()] = m.GetDeletedAt() == nil
				return broken
			},
			Walked: func(_ context.Context, ids map[string]bool) error {
				for id := range have {
					have[id] = ids[id]
				}
				return nil
			}}
		err := r.Pass(t.Context())
		if len(l.script) > 0 {
			t.Errorf("%d answers were not asked for", len(l.script))
		}
		return err
	}
	must := func(want string, script ...answer) {
		t.Helper()
		if err := pass(script...); err != nil {
			t.Fatal(err)
		}
		var got []string
		for id, there := range have {
			if there {
				got = append(got, id)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("the copy has %v, want %s", got, want)
		}
	}
	more := page("c2", "", "c")
	more.More = true
	// The cursor of the second page is not older than that of the first; the first one stands.
	must("b c", answer{page: page("c1", "p1", "a", "b")}, answer{token: "p1", page: page("c1b", "", "c")},
		answer{cursor: "c1", page: more}, answer{cursor: "c2", page: page("c3", "", "-a")})
	broken = errors.New("the copy is full")
	if err := pass(answer{cursor: "c3", page: page("c4", "", "d")}); !errors.Is(err, broken) {
		t.Errorf("an error of the copy became %v", err)
	}
	broken = nil
	if raw, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(raw)) != "c3" {
		t.Errorf("the cursor that is kept is %q (%v)", raw, err)
	}
	expired, err := status.New(codes.FailedPrecondition, "restored").WithDetails(
		&errdetails.ErrorInfo{Domain: "ingot.dev", Reason: "CURSOR_EXPIRED"})
	if err != nil {
		t.Fatal(err)
	}
	must("b e", answer{cursor: "c3", page: page("", ""), err: expired.Err()}, answer{page: page("c9", "", "b", "e")},
		answer{cursor: "c9", page: page("c9", "")})
}
