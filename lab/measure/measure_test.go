package measure

import (
	"os"
	"testing"
	"time"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var values []time.Duration
	for i := 200; i > 0; i-- {
		values = append(values, time.Duration(i)*time.Millisecond)
	}
	if got := Percentiles(values); got != (Latency{P50: 101, P99: 199, Max: 200, N: 200}) {
		t.Errorf("got %+v", got)
	}
	if got := Percentiles([]time.Duration{3 * time.Millisecond}); got.P50 != 3 || got.P99 != 3 {
		t.Errorf("of one: %+v", got)
	}
	if got := Percentiles(nil); got != (Latency{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestTimesCountsAllButTheFirst(t *testing.T) {
	t.Parallel()
	calls := 0
	l, err := Times(3, 2, func(i int) error {
		calls++
		if i != calls-1 {
			t.Errorf("call %d got %d", calls, i)
		}
		return nil
	})
	if err != nil || l.N != 3 || calls != 5 {
		t.Errorf("%+v of %d calls, %v", l, calls, err)
	}
	if _, err := Times(1, 0, func(int) error { return os.ErrClosed }); err == nil {
		t.Error("an error of a call is lost")
	}
}

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	m := parseMetrics(
		"# TYPE go_x gauge\ngo_memstats_heap_inuse_bytes 1\ngo_memstats_stack_inuse_bytes 4.096e+06\nwith{label=\"a b\"} 2\n")
	if got := m.InUse(); got != 4096001 {
		t.Errorf("got %v", got)
	}
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	now, err := RSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	peak, err := Peak(os.Getpid())
	if err != nil || now <= 0 || peak < now {
		t.Errorf("now %d, at most %d, %v", now, peak, err)
	}
	if n, err := OpenFiles(os.Getpid()); err != nil || n < 3 {
		t.Errorf("%d open files, %v", n, err)
	}
}
