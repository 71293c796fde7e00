package when_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/when"
)

var noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func TestStamp(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"2024-05-01T12:00:00Z", "2024-05-01t12:00:00z", "2024-05-01T14:00:00+02:00", "2024-05-01T14:00:00+0200",
		"2024-05-01T14:00:00+02", "2024-05-01T12:00:00", "2024-05-01 12:00:00", "2024-05-01  12:00:00 Z",
		"2024-05-01 14:00:00 +02:00", "2024-05-01 12:00:00 UTC", "2024-05-01T12:00:00 GMT", "2024-05-01T12:00Z",
		"2024-05-01 12:00", "2024-05-01T12:00:00.000", "2024-05-01T12:00:00,000Z", "\ufeff2024-05-01T12:00:00Z\r\n",
		"05/01/2024 12:00:00", "Wed May  1 12:00:00 2024", "Wed May 1 12:00:00 2024 UTC", "May 1 2024 12:00:00",
		"20240501T120000Z", "20240501T120000", "1714564800", "1714564800.5", "1714564800000", " 1714564800 ",
	} {
		if got := when.Stamp(text); !got.Truncate(time.Second).Equal(noon) || got.Location() != time.UTC {
			t.Errorf("%q is %v", text, got)
		}
	}
	if got := when.Stamp("2024-05-01"); !got.Equal(noon.Add(-12 * time.Hour)) {
		t.Errorf("a date is %v", got)
	}
	for _, text := range []string{"", "0000-00-00T00:00:00Z", "1970-01-01T00:00:07+00:00", "2000-01-01 00:00:00", "7", "0",
		"-1714564800", "171456480", "17145648000", "99999999999999999999", "N/A", "Not Available", "2024-13-01T12:00:00Z",
		"10000-01-01T00:00:00Z", "2024-05-01T25:00:00", "9999-12-31T23:59:59-14:00", "1714564800.x"} {
		if got := when.Stamp(text); !got.IsZero() {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestExact(t *testing.T) {
	t.Parallel()
	if got, ok := when.Exact("2024-05-01T14:00:00+02:00"); !ok || !got.Equal(noon) {
		t.Errorf("%v, %t", got, ok)
	}
	for _, text := range []string{"", "2024-05-01 12:00:00Z", "2024-05-01T12:00:00", "0000-05-01T12:00:00Z", "1714564800"} {
		if got, ok := when.Exact(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "3600": time.Minute, "-7": 0, "1.5": 0, "soon": 0,
		"Wed, 01 May 2024 12:00:30 GMT": 30 * time.Second, "Wed, 01 May 2024 11:00:00 GMT": 0,
		"Wednesday, 01-May-24 12:00:30 GMT": 30 * time.Second, "Wed May  1 12:00:30 2024": 30 * time.Second,
		"99999999999999999999": 0,
	} {
		if got := when.RetryAfter(text, noon, time.Minute); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestPerson(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*3600)
	for text, want := range map[string]string{
		"2024-04-01T12:00:00Z": "2024-04-01T12:00:00Z", "2024-04-01 12:00:00": "2024-04-01T10:00:00Z",
		"2024-04-01 12:00": "2024-04-01T10:00:00Z", "2024-04-01 12:00+01:00": "2024-04-01T11:00:00Z",
		"2024-04-01T12:00": "2024-04-01T10:00:00Z", "13:30": "2024-05-01T11:30:00Z", "14:30": "2024-04-30T12:30:00Z",
		"11:30Z": "2024-05-01T11:30:00Z", "12:30:00Z": "2024-04-30T12:30:00Z", " \ufeff13:30\n": "",
		"\ufeff13:30\n": "2024-05-01T11:30:00Z", "": "", "90m": "", "1714564800": "", "12": "",
	} {
		got, ok := when.Person(text, noon, zone)
		if ok != (want != "") || ok && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q is %v, %t; want %s", text, got, ok, want)
		}
	}
}

// FuzzTimes: what a reader returns can be written, and is read as the same again.
func FuzzTimes(f *testing.F) {
	for _, s := range []string{"2024-05-01T12:00:00Z", "05/01/2024 12:00:00", "\ufeff2024-05-01 12:00 +02", "1714564800000", "13:30",
		"Wed, 01 May 2024 12:00:30 GMT", "Wed May  1 12:00:00 2024"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if at := when.Stamp(s); !at.IsZero() && !when.Stamp(at.Format(time.RFC3339Nano)).Equal(at) {
			t.Errorf("%q is %v, then %v", s, at, when.Stamp(at.Format(time.RFC3339Nano)))
		}
		if at, ok := when.Exact(s); ok && !at.Before(time.Date(10000, 1, 1, 0, 0, 0, 0, at.Location())) {
			t.Errorf("%q is %v", s, at)
		}
		if d := when.RetryAfter(s, noon, time.Minute); d < 0 || d > time.Minute {
			t.Errorf("%q is %v", s, d)
		}
		if at, ok := when.Person(s, noon, time.UTC); ok && at.IsZero() && s == "" {
			t.Errorf("%q is %v", s, at)
		}
	})
}
