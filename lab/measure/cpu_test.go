package measure

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	got, err := parseStat("42 (a (odd) name) S 7 1 1 0 -1 4194560 1 2 3 4 150 25 3 2 20 0 1 0 100 0 0")
	if want := (stat{7, 1750 * time.Millisecond, 50 * time.Millisecond}); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1", "42 (x) S 7 1 1 0 -1 4194560 1 2 3 4 x 25 0 0 20"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestProcessorTimeOfThisProcess(t *testing.T) {
	t.Parallel()
	own, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	family, err := FamilyCPU(os.Getpid())
	if err != nil || family < own {
		t.Errorf("%v of the family, %v of the process, %v", family, own, err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has used time")
	}
}
