package metal

import (
	"testing"
	"time"
)

func TestFirstAfterSkipsOthers(t *testing.T) {
	t.Parallel()
	const log = `time=2026-01-02T03:04:05.000Z level=INFO msg="lease an address" machine_id=m1
noise
time=2026-01-02T03:04:07.000Z level=INFO msg="lease an address" machine_id=m2
time=2026-01-02T03:04:08.500Z level=INFO msg="lease an address" machine_id=m1
time=2026-01-02T03:04:09.000Z level=INFO msg="boot file asked for" file=kernel
`
	began := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	for pattern, want := range map[string]time.Duration{
		"lease an address": 2500 * time.Millisecond, "file=(kernel|uki)": 3 * time.Second,
	} {
		if got := firstAfter(log, began, "m1", pattern).Sub(began); got != want {
			t.Errorf("%s after %v, want %v", pattern, got, want)
		}
	}
	if at := firstAfter(log, began, "m1", "installer certified"); !at.IsZero() {
		t.Errorf("something that never happened: %v", at)
	}
}

func TestChainLeavesOutWhatWasNotSeen(t *testing.T) {
	t.Parallel()
	began := time.Unix(100, 0)
	got := chain(began, []Stage{
		{Name: "a", Ended: began.Add(time.Second)}, {Name: "unseen"}, {Name: "early", Ended: began},
		{Name: "b", Ended: began.Add(3 * time.Second)},
	})
	if len(got) != 2 || got[0].Took != time.Second || got[1].Name != "b" || got[1].Took != 2*time.Second {
		t.Errorf("%+v", got)
	}
}
