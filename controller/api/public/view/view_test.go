package view_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/savedview"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// as makes calls with a token of this name and scope.
func as(ctx context.Context, name, scope string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "test-caller", name, "test-scope", scope)
}

func paths(names ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: names} }

func names(all []*pb.View) (out []string) {
	for _, v := range all {
		out = append(out, v.GetName())
	}
	return out
}

func TestAViewIsMadeChangedAndDeleted(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := as(t.Context(), "ada", "operate")
	made, err := r.Views.SetView(ctx, &pb.SetViewRequest{CreateOnly: true, View: &pb.View{
		Name: "gpu-racks", Title: "Racks with GPUs", Description: "for\nthe shift", Filter: "state=IDLE, label.gpu = *",
		OrderBy: "rack  desc", Columns: []string{"machine_id", "state", "label.team", "updated_at"},
		GroupBy: []string{"site", "label.row"}, Shared: true, CreatedBy: "eve", Own: false, Version: 77,
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.View{
		Name: "gpu-racks", Title: "Racks with GPUs", Description: "for\nthe shift",
		Filter: "effective_state=IDLE,labels.gpu=*", OrderBy: "rack desc",
		Columns: []string{"machine_id", "effective_state", "labels.team", "updated_at"},
		GroupBy: []string{"site", "labels.row"}, Shared: true, CreatedBy: "ada", Own: true,
		CreatedAt: made.GetCreatedAt(), UpdatedAt: made.GetUpdatedAt(), Version: 1,
	}
	if !proto.Equal(made, want) || made.GetCreatedAt() == nil {
		t.Fatalf("made %v, want %v", made, want)
	}
	_, err = r.Views.SetView(ctx, &pb.SetViewRequest{CreateOnly: true, View: &pb.View{Name: "gpu-racks"}})
	publictest.Wants(t, err, failure.KindAlreadyExists, "RESOURCE_EXISTS", "create_only")
	_, err = r.Views.SetView(ctx, &pb.SetViewRequest{View: &pb.View{Name: "gpu-racks"}, ExpectedVersion: 2})
	publictest.Wants(t, err, failure.KindPrecondition, "VERSION_CONFLICT", "expected_version")
	_, err = r.Views.SetView(ctx, &pb.SetViewRequest{View: &pb.View{Name: "none"}, ExpectedVersion: 1})
	publictest.Wants(t, err, failure.KindPrecondition, "VERSION_CONFLICT", "expected_version")

	// What the mask does not name stays, whatever is sent for it.
	part, err := r.Views.SetView(ctx, &pb.SetViewRequest{
		View: &pb.View{Name: "gpu-racks", Title: "GPUs", Filter: "no filter at all"}, UpdateMask: paths("title", "columns"),
		ExpectedVersion: 1,
	})
	want.Title, want.Columns, want.Version, want.UpdatedAt = "GPUs", nil, 2, part.GetUpdatedAt()
	if err != nil || !proto.Equal(part, want) || !part.GetUpdatedAt().AsTime().After(made.GetUpdatedAt().AsTime()) {
		t.Fatalf("%v, %v, want %v", part, err, want)
	}
	for _, mask := range []*fieldmaskpb.FieldMask{nil, paths("*")} {
		whole, err := r.Views.SetView(ctx, &pb.SetViewRequest{View: &pb.View{Name: "gpu-racks", Filter: "site=a"},
			UpdateMask: mask})
		if err != nil || whole.GetTitle()+whole.GetOrderBy() != "" || whole.GetFilter() != "site=a" || whole.GetShared() {
			t.Errorf("without a mask: %v, %v", whole, err)
		}
	}
	got, err := r.Views.GetView(ctx, &pb.GetViewRequest{Name: "gpu-racks"})
	if err != nil || got.GetVersion() != 4 || got.GetFilter() != "site=a" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = r.Views.DeleteView(ctx, &pb.DeleteViewRequest{Name: "gpu-racks", ExpectedVersion: 3})
	publictest.Wants(t, err, failure.KindPrecondition, "VERSION_CONFLICT", "expected_version")
	if gone, err := r.Views.DeleteView(ctx, &pb.DeleteViewRequest{Name: "gpu-racks", ExpectedVersion: 4}); err != nil ||
		gone.GetFilter() != "site=a" {
		t.Errorf("deleted %v, %v", gone, err)
	}
	_, err = r.Views.GetView(ctx, &pb.GetViewRequest{Name: "gpu-racks"})
	publictest.Wants(t, err, failure.KindNotFound, "VIEW_NOT_FOUND", "name")
	_, err = r.Views.DeleteView(ctx, &pb.DeleteViewRequest{Name: "gpu-racks"})
	publictest.Wants(t, err, failure.KindNotFound, "VIEW_NOT_FOUND", "name")
}

func TestWhatAViewCanHold(t *testing.T) {
	r := publictest.NewRig(t)
	long, longer := strings.Repeat("x", 300), strings.Repeat("x", 5000)
	columns := func(names ...string) *pb.View { return &pb.View{Name: "v", Columns: names} }
	groups := func(names ...string) *pb.View { return &pb.View{Name: "v", GroupBy: names} }
	for name, c := range map[string]struct {
		reason, field string
		view          *pb.View
		mask          *fieldmaskpb.FieldMask
	}{
		"no name":         {"INVALID_FIELD", "view.name", &pb.View{}, nil},
		"a bad name":      {"INVALID_FIELD", "view.name", &pb.View{Name: "-x/y"}, nil},
		"a long title":    {"INVALID_FIELD", "view.title", &pb.View{Name: "v", Title: long}, nil},
		"two lines":       {"INVALID_FIELD", "view.title", &pb.View{Name: "v", Title: "a\nb"}, nil},
		"a long text":     {"INVALID_FIELD", "view.description", &pb.View{Name: "v", Description: longer}, nil},
		"a filter":        {"INVALID_FILTER", "view.filter", &pb.View{Name: "v", Filter: "colour=red"}, nil},
		"an order":        {"INVALID_ORDER_BY", "view.order_by", &pb.View{Name: "v", OrderBy: "serial"}, nil},
		"a column":        {"INVALID_FIELD", "view.columns", columns("colour"), nil},
		"a spec's column": {"INVALID_FIELD", "view.columns", columns("conditions.RMA"), nil},
		"a bad label":     {"INVALID_FIELD", "view.columns", columns("labels.-"), nil},
		"a column twice":  {"INVALID_FIELD", "view.columns", columns("labels.a", "label.a"), nil},
		"many columns":    {"INVALID_FIELD", "view.columns", columns(make([]string, 33)...), nil},
		"a group":         {"INVALID_GROUP_BY", "view.group_by", groups("colour"), nil},
		"many groups":     {"INVALID_GROUP_BY", "view.group_by", groups("site", "rack", "group", "phase"), nil},
		"a mask":          {"INVALID_FIELD", "update_mask", &pb.View{Name: "v"}, paths("title", "created_by")},
		"no view":         {"INVALID_FIELD", "view.name", nil, paths("title")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Views.SetView(t.Context(), &pb.SetViewRequest{View: c.view, UpdateMask: c.mask})
			publictest.Wants(t, err, failure.KindInvalid, c.reason, c.field)
		})
	}
	all, err := r.Views.SetView(t.Context(), &pb.SetViewRequest{View: &pb.View{Name: "all", Columns: query.Columns()}})
	if err != nil || !slices.Equal(all.GetColumns(), query.Columns()) {
		t.Errorf("every column: %v, %v", all, err)
	}
}

// A view's owner is its maker: by name for a token, and by the provider's subject for a person.
func TestWhoSeesAndChangesAView(t *testing.T) {
	r := publictest.NewRig(t)
	ada, bob := as(t.Context(), "ada", "read"), as(t.Context(), "bob", "operate")
	boss := as(t.Context(), "boss", "admin")
	person := publictest.Within(metadata.AppendToOutgoingContext(t.Context(), "test-caller", "bob"), "site=a")
	set := func(ctx context.Context, v *pb.View, mask ...string) error {
		_, err := r.Views.SetView(ctx, &pb.SetViewRequest{View: v, UpdateMask: paths(mask...)})
		return err
	}
	sees := func(ctx context.Context, want ...string) {
		t.Helper()
		got, err := r.Views.ListViews(ctx, &pb.ListViewsRequest{})
		if err != nil || !slices.Equal(names(got.GetViews()), want) || int(got.GetTotalSize()) != len(want) {
			t.Errorf("sees %v of %d, %v, want %v", names(got.GetViews()), got.GetTotalSize(), err, want)
		}
		for _, name := range []string{"of-ada", "of-bob", "of-person", "ours"} {
			v, err := r.Views.GetView(ctx, &pb.GetViewRequest{Name: name})
			if slices.Contains(want, name) != (err == nil && v.GetFilter() == "site=a") {
				t.Errorf("%s: %v, %v, and the list has %v", name, v, err, want)
			}
			if err != nil {
				publictest.Wants(t, err, failure.KindNotFound, "VIEW_NOT_FOUND", "name")
			}
		}
	}
	for name, ctx := range map[string]context.Context{"of-ada": ada, "of-bob": bob, "of-person": person} {
		if err := set(ctx, &pb.View{Name: name, Filter: "site=a"}); err != nil {
			t.Fatal(name, err)
		}
	}
	// A reader keeps its views to itself; a role for some machines is enough to share.
	publictest.Wants(t, set(ada, &pb.View{Name: "ours", Shared: true}), failure.KindDenied, "SCOPE_TOO_SMALL",
		"view.shared")
	if err := set(person, &pb.View{Name: "ours", Filter: "site=a", Shared: true}); err != nil {
		t.Fatal(err)
	}
	sees(ada, "of-ada", "ours")
	sees(bob, "of-bob", "ours")
	sees(person, "of-person", "ours")
	sees(boss, "ours")

	// Another user's personal view is not there, but for its name.
	for _, ctx := range []context.Context{bob, boss} {
		publictest.Wants(t, set(ctx, &pb.View{Name: "of-ada", Filter: "site=b"}), failure.KindAlreadyExists,
			"RESOURCE_EXISTS", "view.name")
	}
	_, err := r.Views.DeleteView(bob, &pb.DeleteViewRequest{Name: "of-ada"})
	publictest.Wants(t, err, failure.KindNotFound, "VIEW_NOT_FOUND", "name")

	// A shared one is its owner's to change, and an admin's, who does not take it over.
	publictest.Wants(t, set(bob, &pb.View{Name: "ours", Title: "mine"}, "title"), failure.KindDenied, "SCOPE_TOO_SMALL",
		"view.name")
	_, err = r.Views.DeleteView(bob, &pb.DeleteViewRequest{Name: "ours"})
	publictest.Wants(t, err, failure.KindDenied, "SCOPE_TOO_SMALL", "name")
	if err := set(boss, &pb.View{Name: "ours", Title: "everybody's"}, "title"); err != nil {
		t.Error(err)
	}
	publictest.Wants(t, set(boss, &pb.View{Name: "ours"}), failure.KindInvalid, "INVALID_FIELD", "view.shared")
	if v, err := r.Views.GetView(person, &pb.GetViewRequest{Name: "ours"}); err != nil || !v.GetOwn() ||
		v.GetTitle() != "everybody's" || v.GetCreatedBy() != "bob" || v.GetVersion() != 2 {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := r.Views.GetView(bob, &pb.GetViewRequest{Name: "ours"}); err != nil || v.GetOwn() {
		t.Errorf("the token bob owns what the person bob has made: %v, %v", v, err)
	}
	if err := set(person, &pb.View{Name: "ours"}, "shared"); err != nil {
		t.Error(err)
	}
	sees(bob, "of-bob")

	// An admin deletes any, and is not shown what was in it.
	gone, err := r.Views.DeleteView(boss, &pb.DeleteViewRequest{Name: "of-ada"})
	if err != nil || gone.GetFilter() != "" || gone.GetCreatedBy() != "ada" {
		t.Errorf("%v, %v", gone, err)
	}
	sees(ada)
}

func TestViewsAreListedLikeAllElse(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 7 {
		v := &pb.View{Name: fmt.Sprint("v", i), Title: fmt.Sprint("t", 10-i), Shared: i%2 == 0}
		if _, err := r.Views.SetView(t.Context(), &pb.SetViewRequest{View: v}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		filter, order string
		want          []string
	}{
		{"", "", []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6"}},
		{"shared=true", "", []string{"v0", "v2", "v4", "v6"}},
		{"shared=false", "title", []string{"v5", "v3", "v1"}},
		{"", "name desc", []string{"v6", "v5", "v4", "v3", "v2", "v1", "v0"}},
	} {
		var got []string
		publictest.Walk(t, func(token string) (string, error) {
			page, err := r.Views.ListViews(t.Context(), &pb.ListViewsRequest{PageSize: 2, PageToken: token, Filter: c.filter,
				OrderBy: c.order})
			// A list that is not filtered is counted by the database, which may take too long.
			if n := int(page.GetTotalSize()); err == nil && n != len(c.want) && (n != 0 || c.filter+c.order != "") {
				t.Errorf("%+v: %d in all", c, page.GetTotalSize())
			}
			got = append(got, names(page.GetViews())...)
			return page.GetNextPageToken(), err
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	_, err := r.Views.ListViews(t.Context(), &pb.ListViewsRequest{Filter: "colour=red"})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "")
}

// The bounds hold for views that are made at once, and those that are there can be changed still.
func TestViewsAreBounded(t *testing.T) {
	r := publictest.NewRig(t)
	fill := func(owner string, n int) {
		t.Helper()
		_, err := r.Store.DB.Pool().Exec(t.Context(), `INSERT INTO saved_views (name, title, description, filter, order_by,
			columns, group_by, shared, created_by, created_by_identity, created_at, updated_at)
			SELECT $1 || '-' || i, '', '', '', '', '{}', '{}', false, $1, 'token ' || $1, now(), now()
			FROM generate_series(1, $2) i`, owner, n)
		if err != nil {
			t.Fatal(err)
		}
	}
	fill("ada", savedview.MaxOfOwner-3)
	ada := as(t.Context(), "ada", "operate")
	var made atomic.Int32
	g, _ := task.New(t.Context())
	for i := range 10 {
		g.Go("make", func(context.Context) error {
			_, err := r.Views.SetView(ada, &pb.SetViewRequest{View: &pb.View{Name: fmt.Sprint("x", i)}})
			if err == nil {
				made.Add(1)
				return nil
			}
			if e := failure.From(err); e.Kind != failure.KindPrecondition || !strings.Contains(e.Message, "200 views") {
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || made.Load() != 3 {
		t.Errorf("%d made, %v", made.Load(), err)
	}
	if _, err := r.Views.SetView(ada, &pb.SetViewRequest{View: &pb.View{Name: "ada-1", Title: "still"}}); err != nil {
		t.Error(err)
	}
	for i := range savedview.MaxOfAll/savedview.MaxOfOwner - 1 {
		fill(fmt.Sprint("o", i), savedview.MaxOfOwner)
	}
	_, err := r.Views.SetView(as(t.Context(), "bob", "read"), &pb.SetViewRequest{View: &pb.View{Name: "one-more"}})
	publictest.Wants(t, err, failure.KindPrecondition, "INVALID_FIELD", "view")
}

// The audit log has who did what, and nothing of what a personal view holds.
func TestViewsAreAudited(t *testing.T) {
	r := publictest.NewRig(t)
	ada := as(t.Context(), "ada", "operate")
	for _, v := range []*pb.View{
		{Name: "v", Title: "hush-hush", Filter: "site=hush-hush"},
		{Name: "v", Title: "told", Filter: "site=told", Columns: []string{"site", "rack"}, Shared: true},
	} {
		if _, err := r.Views.SetView(ada, &pb.SetViewRequest{View: v}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Views.DeleteView(t.Context(), &pb.DeleteViewRequest{Name: "v"}); err != nil {
		t.Fatal(err)
	}
	log, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "v"})
	if err != nil || len(log.GetEntries()) != 3 {
		t.Fatalf("%v, %v", log, err)
	}
	for i, want := range []struct{ actor, verb, data string }{
		{"tester", "DELETE_VIEW", `"owner": "ada"`}, {"ada", "SET_VIEW", `"columns": "site,rack"`},
		{"ada", "SET_VIEW", `"shared": "false"`},
	} {
		e := log.GetEntries()[i]
		data := string(e.GetEventData())
		if e.GetActor() != want.actor || e.GetVerb() != want.verb || !strings.Contains(data, want.data) ||
			!strings.Contains(data, `"source_address": "192.0.2.9"`) || strings.Contains(data, "hush-hush") ||
			time.Since(e.GetTs().AsTime()) > time.Minute {
			t.Errorf("%d: %v", i, e)
		}
	}
}
