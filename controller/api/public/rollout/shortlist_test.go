package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestShortListsFilterAndSort: pages of a filtered and sorted list hold each row once, whatever comes and goes between
// them. A token is valid for its filter and order alone.
func TestShortListsFilterAndSort(t *testing.T) {
	r := publictest.NewRig(t)
	set := func(name string, atOnce int32) {
		t.Helper()
		_, err := r.Budgets.SetBudget(t.Context(),
			&pb.SetBudgetRequest{Budget: &pb.Budget{Name: name, Domain: "fleet", AtOnce: atOnce}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		set(fmt.Sprintf("b-%d", i), int32(i%3+1))
	}
	set("other", 1)
	walk := func(filter, order string, between func()) (out []string, total int32) {
		t.Helper()
		request := &pb.ListBudgetsRequest{Filter: filter, OrderBy: order, PageSize: 5}
		for {
			page, err := r.Budgets.ListBudgets(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range page.GetBudgets() {
				out = append(out, b.GetName())
			}
			total = page.GetTotalSize()
			if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
				return out, total
			}
			between()
		}
	}
	none := func() {}
	for _, c := range []struct{ filter, order, want string }{
		{"name=b-*", "name desc", "b-11 b-10 b-9 b-8 b-7 b-6 b-5 b-4 b-3 b-2 b-1 b-0"},
		{"name=b-*,at_once!=1", "", "b-1 b-10 b-11 b-2 b-4 b-5 b-7 b-8"},
		{"at_once in (3)", "name", "b-2 b-5 b-8 b-11"},
		{"", "at_once", "b-0 b-3 b-6 b-9 other b-1 b-4 b-7 b-10 b-2 b-5 b-8 b-11"},
	} {
		got, total := walk(c.filter, c.order, none)
		if strings.Join(got, " ") != c.want || int(total) != len(got) {
			t.Errorf("%q by %q: %v of %d, want %s", c.filter, c.order, got, total, c.want)
		}
	}
	passed := 0
	got, _ := walk("name=b-*", "name desc", func() {
		if passed++; passed == 1 {
			// The last row of the first page goes; one comes before the page, one behind it.
			if _, err := r.Budgets.DeleteBudget(t.Context(), &pb.DeleteBudgetRequest{Name: "b-7"}); err != nil {
				t.Fatal(err)
			}
			set("b-99", 1)
			set("b-06", 1)
		}
	})
	if want := "b-11 b-10 b-9 b-8 b-7 b-6 b-06 b-5 b-4 b-3 b-2 b-1 b-0"; strings.Join(got, " ") != want {
		t.Errorf("with changes between the pages: %v, want %s", got, want)
	}
	first, err := r.Budgets.ListBudgets(t.Context(), &pb.ListBudgetsRequest{OrderBy: "name", PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	for reason, request := range map[string]*pb.ListBudgetsRequest{
		"INVALID_PAGE_TOKEN": {OrderBy: "name desc", PageToken: first.GetNextPageToken()},
		"INVALID_ORDER_BY":   {OrderBy: "mane"}, "INVALID_FILTER": {Filter: "mane=x"},
	} {
		_, err := r.Budgets.ListBudgets(t.Context(), request)
		if failure.ReasonOf(err) != reason {
			t.Errorf("%v: %v, want %s", request, err, reason)
		}
	}
}
