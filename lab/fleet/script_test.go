package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestParseScript(t *testing.T) {
	s, err := ParseScript("reboot:time=2s,fail=0.25; *:silent=1")
	if err != nil || s[kindReboot] != (Behaviour{Time: 2 * time.Second, Fail: 0.25}) ||
		s[kindAny] != (Behaviour{Silent: 1}) {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, bad := range []string{"reboot", "fly:fail=1", "reboot:fail=2", "reboot:time=soon", "reboot:often=1"} {
		if s, err := ParseScript(bad); !errors.Is(err, ErrScript) {
			t.Errorf("%q: %+v, %v", bad, s, err)
		}
	}
}

// A share is a share, and the faults fall on commands independently of each other.
func TestSharesOfAScript(t *testing.T) {
	s := Script{kindReboot: {Time: time.Second, Fail: 0.1, Slow: 0.5}}
	const n = 10000
	var failed, slow, both int
	for i := range n {
		f := s.of(kindReboot, fmt.Sprintf("cmd-%d", i))
		if f.fail {
			failed++
		}
		if f.time == 10*time.Second {
			slow++
		}
		if f.fail && f.time == 10*time.Second {
			both++
		}
	}
	for _, c := range []struct {
		what      string
		got, want int
	}{{"failed", failed, n / 10}, {"slow", slow, n / 2}, {"failed and slow", both, n / 20}} {
		if c.got < c.want*8/10 || c.got > c.want*12/10 {
			t.Errorf("%s: %d of %d, want about %d", c.what, c.got, n, c.want)
		}
	}
	if f := s.of(kindNetboot, "cmd-1"); f != (fate{}) {
		t.Errorf("a kind that is not named: %+v", f)
	}
}
