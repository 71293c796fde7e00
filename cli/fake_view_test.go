package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// gpuRacks is shared by another user, mine is personal.
var (
	gpuRacks = &pb.View{
		Name: "gpu-racks", Title: "Racks\x1b[2J with GPUs", Filter: "labels.gpu=*", OrderBy: "rack desc",
		Columns: []string{"machine_id", "rack", "effective_state", "labels.env"}, GroupBy: []string{"site", "rack"},
		Shared: true, CreatedBy: "ada", UpdatedAt: at(60), Version: 3,
	}
	mine = &pb.View{Name: "mine", Filter: "site=a", CreatedBy: "tester", Own: true, UpdatedAt: at(0), Version: 1}
)

// ListViews returns one view a page.
func (f *fakeServer) ListViews(_ context.Context, r *pb.ListViewsRequest) (*pb.ListViewsResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListViewsResponse{Views: []*pb.View{gpuRacks}, NextPageToken: "2"}, nil
	}
	return &pb.ListViewsResponse{Views: []*pb.View{mine}}, nil
}

func (f *fakeServer) GetView(_ context.Context, r *pb.GetViewRequest) (*pb.View, error) {
	for _, v := range []*pb.View{gpuRacks, mine} {
		if v.GetName() == r.GetName() {
			return v, nil
		}
	}
	return nil, refuse(codes.NotFound, pb.Reason_VIEW_NOT_FOUND, `there is no view "`+r.GetName()+`"`, nil)
}

func (f *fakeServer) SetView(_ context.Context, r *pb.SetViewRequest) (*pb.View, error) {
	v := r.GetView()
	v.Own, v.CreatedBy, v.UpdatedAt = true, "tester", at(60)
	return v, nil
}

func (f *fakeServer) DeleteView(ctx context.Context, r *pb.DeleteViewRequest) (*pb.View, error) {
	return f.GetView(ctx, &pb.GetViewRequest{Name: r.GetName()})
}

func TestViewCommands(t *testing.T) {
	golden(t, "view", fleet,
		"view list",
		"view list -o name",
		"view show gpu-racks",
		"view show none",
		"view set mine --filter site=a --columns machine_id,rack --group-by rack --order-by rack --shared",
		"view set mine --title=",
		"view set mine --filter site=a --create-only",
		"view set mine",
		"view delete mine",
		"list --view gpu-racks",
		"list --view gpu-racks --filter state=IDLE --order-by site -o name",
		"list --view none",
	)
}

// A moment of the past, and a watch, have orders of their own, which a view's would be refused with.
func TestAViewWhereItsOrderDoesNotGo(t *testing.T) {
	f := fleet()
	got := f.run(t, "list", "--view", "gpu-racks", "--as-of", "2026-03-01T12:00:00Z")
	asked := slices.ContainsFunc(f.asked, func(s string) bool { return strings.Contains(s, `"filter":"labels.gpu=*"`) })
	ordered := slices.ContainsFunc(f.asked, func(s string) bool { return strings.Contains(s, "order_by") })
	if got.code != 0 || !asked || ordered {
		t.Errorf("%+v asked %v", got, f.asked)
	}
}
