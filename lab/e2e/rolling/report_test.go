package rolling

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// limits are what operations may take when controllers come and go.
type limits struct {
	// late is what an operation may take above the longest of the calm.
	late time.Duration
	// moves is how soon after a kill every operation that was under way has ended.
	moves time.Duration
}

// crowded is for a machine that many tests share: recovery waits for a minute.
var crowded = limits{late: 20 * time.Second, moves: 20 * time.Second}

// recovery is what came of a kill.
type recovery struct {
	who string
	// underWay are the operations that had begun at the kill and not ended. The first of all to end did so after first,
	// the middle one of them after median, and the last after last.
	underWay            int
	first, median, last time.Duration
	// everywhere is when each machine had ended an operation that was begun after the kill.
	everywhere time.Duration
	slowest    string
}

// recoverOf reads from the operations how a kill was got over.
func recoverOf(k kill, ended map[string]stretch) recovery {
	out := recovery{who: k.who, first: -1}
	var after []time.Duration
	anew := map[string]time.Duration{}
	for id, s := range ended {
		since := s.ended.Sub(k.at)
		if since < 0 {
			continue
		}
		if out.first < 0 || since < out.first {
			out.first = since
		}
		if !s.begun.Before(k.at) {
			if have, ok := anew[s.machine]; !ok || since < have {
				anew[s.machine] = since
			}
			continue
		}
		after = append(after, since)
		if since > out.last {
			out.last, out.slowest = since, id
		}
	}
	if out.underWay = len(after); out.underWay > 0 {
		slices.Sort(after)
		out.median = after[len(after)/2]
	}
	for _, d := range anew {
		out.everywhere = max(out.everywhere, d)
	}
	return out
}

// judgeTimes holds how long operations have taken against the limits, and shows it.
func (l *traffic) judgeTimes(limits limits) {
	l.t.Helper()
	normal := slices.Max(append([]time.Duration{0}, l.took["calm"]...))
	l.t.Logf("operations by phase, and calls that were repeated:\n%s",
		table(func(w io.Writer) { l.phases(w, normal, limits) }))
	l.t.Logf("after each kill -9:\n%s", table(func(w io.Writer) { l.recoveries(w, limits) }))
	if l.refused > 0 {
		l.t.Errorf("%d calls have failed with codes that are not to be repeated", l.refused)
	}
}

func table(fill func(io.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // into a string
	return b.String()
}

// verdict returns whether a time is within its limit.
func verdict(took, limit time.Duration) string {
	if took > limit {
		return "MISSED"
	}
	return "met"
}

func (l *traffic) phases(w io.Writer, normal time.Duration, limits limits) {
	fmt.Fprintf(w, "phase\toperations\tp50\tp99\tlongest\tlimit\t\tcalls repeated\n")
	limit := normal + limits.late
	for _, phase := range slices.Sorted(maps.Keys(l.took)) {
		d := l.took[phase]
		slices.Sort(d)
		longest := d[len(d)-1]
		bound, word := fmt.Sprint(milli(limit)), verdict(longest, limit)
		if phase == standing {
			bound, word = "-", "-"
		}
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%s\t%s\t%s\n", phase, len(d), milli(d[len(d)/2]), milli(d[len(d)*99/100]),
			milli(longest), bound, word,
			cmp.Or(counted(l.repeats[phase]), "none"))
		if word == "MISSED" {
			l.t.Errorf("%s: an operation has taken %v, %v more than the longest of the calm", phase, milli(longest),
				milli(longest-normal))
			for id, s := range l.ended {
				if s.ended.Sub(s.begun) >= longest {
					l.tell(id, s.begun)
				}
			}
		}
	}
}

func (l *traffic) recoveries(w io.Writer, limits limits) {
	fmt.Fprintf(w, "killed\tunder way\tany ended after\tp50\tall ended after\tlimit\t\tevery machine anew after\n")
	for _, k := range l.kills {
		r := recoverOf(k, l.ended)
		word := verdict(r.last, limits.moves)
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%v\t%s\t%v\n", r.who, r.underWay, milli(r.first), milli(r.median), milli(r.last),
			limits.moves, word, milli(r.everywhere))
		if word == "MISSED" {
			l.t.Errorf("kill -9 of %s: an operation that was under way has ended %v after it", r.who, milli(r.last))
		}
		if r.slowest != "" {
			l.tell(r.slowest, k.at)
		}
	}
}

func counted(by map[string]int) string {
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf("%d %s", by[reason], reason))
	}
	return strings.Join(out, ", ")
}
