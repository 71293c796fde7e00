package rows_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/rows"
)

var columns = rows.Of((&baremetalv1.BootstrapToken{}).ProtoReflect().Descriptor(), nil)

func TestFilter(t *testing.T) {
	token := &baremetalv1.BootstrapToken{TokenId: "t-1", Site: "berlin-2", Role: baremetalv1.AgentRole_AGENT_ROLE_SITE}
	for filter, want := range map[string]bool{
		"": true, "site=berlin-2": true, "site=berlin-*": true, "site!=berlin-2": false, "site in (paris, berlin-2)": true,
		"site not in (paris)": true, "role=SITE": true, "role=AGENT_ROLE_SITE": true, "role=HOST": false,
		"machine_id=*": false, "machine_id!=*": true, "site=berlin-2,role=HOST": false,
	} {
		matches, err := columns.Filter(filter)
		if err != nil || matches(token) != want {
			t.Errorf("%q: %v", filter, err)
		}
	}
	for _, bad := range []string{"sight=x", "role=PILOT", "created_at=2026-01-01T00:00:00Z", "site", "role=*"} {
		if _, err := columns.Filter(bad); err == nil || !strings.Contains(err.Error(), "position") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestOrder(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := []*baremetalv1.BootstrapToken{
		{TokenId: "a", Site: "r10", CreatedAt: timestamppb.New(at)},
		{TokenId: "b", Site: "r2", CreatedAt: timestamppb.New(at.Add(time.Second))},
		{TokenId: "c", Site: "r2", CreatedAt: timestamppb.New(at.Add(-time.Nanosecond))},
		{TokenId: "d"},
	}
	for order, want := range map[string]string{
		"site": "dbca", "site desc": "abcd", "created_at": "dcab", "created_at desc": "bacd", "token_id desc": "dcba",
	} {
		o, err := columns.Order(order)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.SortedFunc(slices.Values(all), func(a, b *baremetalv1.BootstrapToken) int {
			return o.Compare(o.Place(a, a.GetTokenId()), o.Place(b, b.GetTokenId()))
		})
		got := ""
		for _, token := range sorted {
			got += token.GetTokenId()
		}
		if got != want {
			t.Errorf("%q sorts %q, want %q", order, got, want)
		}
	}
	for _, bad := range []string{"sight", "site up", "site desc twice"} {
		if _, err := columns.Order(bad); err == nil || !strings.Contains(err.Error(), "order_by") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNatural(t *testing.T) {
	sorted := []string{"", "2", "10", "a", "a1", "a2b1", "a2b10", "a10", "b"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := rows.Natural(a, b); got != cmp.Compare(i, j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
	if rows.Natural("a1", "a01") == 0 || rows.Natural("a1", "a01") != -rows.Natural("a01", "a1") {
		t.Error("a1 and a01 are not told apart")
	}
}
