// Package when reads the times that come from outside: of logs and clocks of machines, of HTTP headers, of persons and
// of our own protocols. No other code parses them, so that one text means one moment everywhere.
package when

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mostText is more bytes than a time has in any form.
const mostText = 64

// Exact reads RFC 3339 and nothing else: the form of our own protocols and files. Years before 1 are none.
func Exact(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil && t.Year() > 0
}

// forms are how programs of machines write times, with a blank for the T. The first is the one of the standards
// (DSP0266, "Date-Time values"), the last two are those of ctime(3) and of syslog with a year.
var forms = []string{
	"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z0700", "2006-01-02 15:04:05Z07", "2006-01-02 15:04:05",
	"2006-01-02 15:04Z07:00", "2006-01-02 15:04", "2006-01-02", "20060102 150405Z0700", "20060102 150405",
	"01/02/2006 15:04:05", "Mon Jan 2 15:04:05 2006", "Mon Jan 2 15:04:05 2006Z07:00", "Jan 2 2006 15:04:05",
}

// beforeClocks is earlier than any entry of a log: a clock that was never set counts from 1970 or 2000. afterClocks is
// the first moment that RFC 3339 can't write.
var (
	beforeClocks = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	afterClocks  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Stamp reads a time that a machine's program wrote, and returns it in UTC. It returns the zero time for another text,
// or where the clock was not set. A time without a zone is in UTC, which the clocks of machines are set to. A blank may
// stand for the T or before the zone, a byte order mark and space around all. A number counts the seconds since 1970,
// and one of 13 digits the milliseconds.
func Stamp(text string) time.Time {
	t := stamp(text)
	if t.Before(beforeClocks) || !t.Before(afterClocks) {
		return time.Time{}
	}
	return t.UTC()
}

func stamp(text string) time.Time {
	if len(text) > mostText {
		return time.Time{}
	}
	text = strings.Join(strings.Fields(strings.TrimPrefix(strings.TrimSpace(text), "\ufeff")), " ")
	if t, ok := counted(text); ok {
		return t
	}
	text = normal(text)
	for _, form := range forms {
		if t, err := time.Parse(form, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// normal writes a blank for a T between two digits, no blank before the zone, and Z for UTC.
func normal(text string) string {
	b := []byte(text)
	for i := 1; i+1 < len(b); i++ {
		if (b[i] == 'T' || b[i] == 't') && digit(b[i-1]) && digit(b[i+1]) {
			b[i] = ' '
		}
	}
	text = string(b)
	for _, utc := range []string{" UTC", " GMT", " Z", "z"} {
		if head, ok := strings.CutSuffix(text, utc); ok {
			text = head + "Z"
		}
	}
	return strings.NewReplacer(" +", "+", " -", "-").Replace(text)
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

// counted reads the seconds or milliseconds since 1970, with a fraction or without.
func counted(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if _, bad := strconv.ParseUint("0"+fraction, 10, 63); err != nil || bad != nil {
		return time.Time{}, false
	}
	switch len(whole) {
	case 9, 10:
		return time.Unix(int64(n), 0), true
	case 13:
		return time.UnixMilli(int64(n)), true
	}
	return time.Time{}, false
}

// HTTP reads the time of a header (RFC 9110, 5.6.7), and reports whether text is one.
func HTTP(text string) (time.Time, bool) {
	t, err := http.ParseTime(strings.TrimSpace(text))
	return t, err == nil
}

// RetryAfter reads how long a server asks not to be asked again (RFC 9110, 10.2.3: seconds, or a date): 0 where text is
// neither or the date is over, and most at the longest.
func RetryAfter(text string, now time.Time, most time.Duration) time.Duration {
	text = strings.TrimSpace(text)
	d := time.Duration(0)
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, ok := HTTP(text); ok {
		d = at.Sub(now)
	}
	return max(0, min(d, most))
}

// written are the forms in which a person writes a moment: with a date or without, with an offset or without.
var written = []struct {
	form  string
	dated bool
}{
	{time.RFC3339, true}, {"2006-01-02 15:04:05Z07:00", true}, {"2006-01-02T15:04Z07:00", true},
	{"2006-01-02 15:04Z07:00", true}, {"2006-01-02T15:04:05", true}, {time.DateTime, true}, {"2006-01-02T15:04", true},
	{"2006-01-02 15:04", true}, {"15:04Z07:00", false}, {"15:04:05Z07:00", false}, {"15:04", false},
	{time.TimeOnly, false},
}

// Person reads a moment as a person writes it, and reports whether text is one. Without an offset it is in zone. A time
// of day is the last one before now.
func Person(text string, now time.Time, zone *time.Location) (time.Time, bool) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	for _, w := range written {
		t, err := time.ParseInLocation(w.form, text, zone)
		switch {
		case err != nil:
			continue
		case w.dated:
			return t, true
		}
		return lastTime(now.In(t.Location()), t), true
	}
	return time.Time{}, false
}

// lastTime is when it was this time of day last, in the zone of now.
func lastTime(now, t time.Time) time.Time {
	of := func(day int) time.Time {
		return time.Date(now.Year(), now.Month(), day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	if today := of(now.Day()); !today.After(now) {
		return today
	}
	return of(now.Day() - 1)
}
