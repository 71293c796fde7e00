package work

import (
	"testing"
)

func TestParseRule(t *testing.T) {
	r, err := parseRule("tcp:8000-8100@10.0.0.0/8%5")
	if err != nil || r.GetProtocol() != "tcp" || r.GetPortFrom() != 8000 || r.GetPortTo() != 8100 ||
		r.GetSourceCidr() != "10.0.0.0/8" || r.GetRatePerSecond() != 5 {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range []string{"", "tcp:", "tcp:x", "tcp:1-", ":22", "tcp%fast"} {
		if _, err := parseRule(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
