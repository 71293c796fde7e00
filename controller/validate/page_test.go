package validate_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

func badToken(err error) bool {
	f := failure.From(err)
	return f != nil && f.Reason == "INVALID_PAGE_TOKEN" && len(f.Fields) == 1 && f.Fields[0].Path == "page_token"
}

func TestPageTokensComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := validate.Page{
			ID:     rapid.StringMatching(`[a-z0-9.-]{1,63}`).Draw(t, "id"),
			Time:   time.UnixMicro(rapid.Int64Range(1, 4e15).Draw(t, "time")).UTC(),
			Cursor: rapid.StringMatching(`[A-Za-z0-9_-]{0,50}`).Draw(t, "cursor"), Part: rapid.IntRange(0, 3).Draw(t, "part"),
		}
		list, filter := rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "list"), rapid.String().Draw(t, "filter")
		token := p.Token(list, filter)
		got, err := validate.ParsePage(token, list, filter)
		if err != nil || got.ID != p.ID || !got.Time.Equal(p.Time) || got.Cursor != p.Cursor || got.Part != p.Part {
			t.Fatalf("%+v came back as %+v, %v", p, got, err)
		}
		if _, err := validate.ParsePage(token, list, filter+"x"); !badToken(err) {
			t.Fatalf("good for another filter: %v", err)
		}
		if _, err := validate.ParsePage(token, list+"x", filter); !badToken(err) {
			t.Fatalf("good for another list: %v", err)
		}
	})
}

func TestPageTokensOfOthers(t *testing.T) {
	good := validate.Page{ID: "m-1"}.Token("machines", "")
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(good)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			raw = []byte(rapid.String().Draw(t, "text"))
		case 1:
			raw = raw[:rapid.IntRange(1, len(raw)-1).Draw(t, "cut")]
		case 2:
			raw = append(raw, rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "more")...)
		}
		if len(raw) == 0 {
			return
		}
		if got, err := validate.ParsePage(string(raw), "machines", ""); !badToken(err) {
			t.Fatalf("%q gives %+v, %v", raw, got, err)
		}
	})
}

func TestPageSize(t *testing.T) {
	for n, want := range map[int32]int32{0: validate.Unlimited, 1: 1, 1000: 1000, 1001: 1000, 1 << 30: 1000} {
		if got, err := validate.PageSize(n); err != nil || got != want {
			t.Errorf("%d gives %d, %v", n, got, err)
		}
	}
	if _, err := validate.PageSize(-1); failure.ReasonOf(err) != "INVALID_FIELD" {
		t.Errorf("-1 gives %v", err)
	}
}

func TestAuditPosition(t *testing.T) {
	if n, err := (validate.Page{}).AuditPosition(); n != 0 || err != nil {
		t.Errorf("start: %d, %v", n, err)
	}
	if n, err := (validate.Page{ID: "42"}).AuditPosition(); n != 42 || err != nil {
		t.Errorf("42: %d, %v", n, err)
	}
	for _, id := range []string{"0", "-1", "x", "9223372036854775808"} {
		if _, err := (validate.Page{ID: id}).AuditPosition(); !badToken(err) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestHistoryPosition(t *testing.T) {
	if seq, change, err := (validate.Page{}).HistoryPosition(); seq != 0 || change != 0 || err != nil {
		t.Errorf("start: %d, %d, %v", seq, change, err)
	}
	if seq, change, err := (validate.Page{ID: "42.7"}).HistoryPosition(); seq != 42 || change != 7 || err != nil {
		t.Errorf("42.7: %d, %d, %v", seq, change, err)
	}
	for _, id := range []string{"42", "0.1", "42.", "42.x", "42.-1", "x.1", "42.2147483648"} {
		if _, _, err := (validate.Page{ID: id}).HistoryPosition(); !badToken(err) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
