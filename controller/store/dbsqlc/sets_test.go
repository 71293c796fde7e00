package dbsqlc

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var parameter = regexp.MustCompile(`\$(\d+)`)

// parameters is the highest number of a parameter.
func parameters(t *testing.T, sql string) (most int) {
	t.Helper()
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	return most
}

// table is what a statement writes.
var table = regexp.MustCompile(`(?:INSERT INTO|UPDATE) (\w+)`)

// A statement for many writes the same table with the same parameters as the one for one, and one more where it numbers
// rows.
func TestSetsBelongTogether(t *testing.T) {
	for i, s := range sets {
		name, _, _ := strings.Cut(s.one, "\n")
		if got := SetRank(s.one); got != i {
			t.Errorf("%s: rank %d, want %d", name, got, i)
		}
		many, numbered := SetOf(i)
		want := parameters(t, s.one)
		if numbered {
			want++
		}
		if got := parameters(t, many); got != want ||
			table.FindStringSubmatch(s.one)[1] != table.FindStringSubmatch(many)[1] {
			t.Errorf("%s: %d parameters, want %d, in %s", name, got, want, many)
		}
		if counts := returns(s.one, "execrows"); !WritesOnly(s.one) || counts && !numbered {
			t.Errorf("%s: returns rows: %v; it is counted (%v) and that of many is numbered (%v)", name, !WritesOnly(s.one),
				counts, numbered)
		}
	}
	if SetRank(getPlan) != NoSet || WritesOnly(getPlan) || !WritesOnly(markPlanUsed) {
		t.Error("a statement is taken for another")
	}
}
