package bmc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		protocol       Protocol
		key, url, rmcp string
	}{
		"bmc-1":                   {Unknown, "bmc-1", "https://bmc-1:443", "bmc-1:623"},
		"BMC-1.Example.":          {Unknown, "bmc-1.example.", "https://bmc-1.example.:443", "bmc-1.example.:623"},
		"192.0.2.7":               {Unknown, "192.0.2.7", "https://192.0.2.7:443", "192.0.2.7:623"},
		"192.0.2.7:8000":          {Unknown, "192.0.2.7:8000", "https://192.0.2.7:8000", "192.0.2.7:8000"},
		"2001:db8::7":             {Unknown, "2001:db8::7", "https://[2001:db8::7]:443", "[2001:db8::7]:623"},
		"[2001:db8::7]:8443":      {Unknown, "[2001:db8::7]:8443", "https://[2001:db8::7]:8443", "[2001:db8::7]:8443"},
		"fe80::1%eth0":            {Unknown, "fe80::1%eth0", "https://[fe80::1%25eth0]:443", "[fe80::1%eth0]:623"},
		"redfish://[fe80::1%25e]": {Redfish, "fe80::1%e", "https://[fe80::1%25e]:443", "[fe80::1%e]:623"},
		"redfish://bmc-1":         {Redfish, "bmc-1", "https://bmc-1:443", "bmc-1:623"},
		"redfish://bmc-1:443/":    {Redfish, "bmc-1", "https://bmc-1:443", "bmc-1:443"},
		"redfish://[::1]:9":       {Redfish, "[::1]:9", "https://[::1]:9", "[::1]:9"},
		"redfish+http://bmc-1":    {Redfish, "bmc-1", "http://bmc-1:80", "bmc-1:623"},
		"redfish+http://x:18000":  {Redfish, "x:18000", "http://x:18000", "x:18000"},
		"ipmi://bmc-1":            {IPMI, "bmc-1", "https://bmc-1:443", "bmc-1:623"},
		"ipmi://bmc-1:6230":       {IPMI, "bmc-1:6230", "https://bmc-1:6230", "bmc-1:6230"},
	} {
		e, err := ParseEndpoint(in)
		if err != nil || e.Protocol != want.protocol || e.Key() != want.key || e.url() != want.url || e.rmcp() != want.rmcp {
			t.Errorf("%q: %+v, key %s, %s, %s, %v", in, e, e.Key(), e.url(), e.rmcp(), err)
		}
	}
	for _, in := range []string{
		"", "redfish://", "https://bmc-1", "telnet://x", "bmc-1/redfish", "bmc-1:", "bmc-1:0", "bmc-1:65536", "bmc-1:x",
		":443", "a b",
		"ipmi://root:calvin@bmc-1", "root@bmc-1", "a:b:c", "redfish://bmc-1?x=1", "redfish://bmc-1#1", "[::1", "x\ny",
	} {
		e, err := ParseEndpoint(in)
		if !errors.Is(err, effect.ErrInvalid) || strings.Contains(err.Error(), "calvin") {
			t.Errorf("%q is taken as %+v, %v", in, e, err)
		}
	}
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBudget(t *testing.T) {
	t.Parallel()
	type step struct {
		after time.Duration // since the step before
		with  string
		want  Permission
		then  Outcome // only where want is Go
	}
	const s, m = time.Second, time.Minute
	for name, steps := range map[string][]step{
		"good":                      {{0, "a@1", Go, Answered}, {0, "a@1", Go, Answered}},
		"refused once and for ever": {{0, "a@1", Go, Refused}, {0, "a@1", ParkedLeave, 0}, {100 * m, "a@1", ParkedLeave, 0}},
		"others may":                {{0, "a@1", Go, Refused}, {0, "a@2", Go, Answered}, {0, "a@1", ParkedLeave, 0}},
		"an answer to others unparks nobody": {
			{0, "a@1", Go, Refused}, {0, "b@1", Go, Answered}, {0, "a@1", ParkedLeave, 0}, {0, "b@1", Go, Answered},
		},
		"three and out": {
			{0, "a@1", Go, Refused}, {m, "a@2", Go, Refused}, {m, "a@3", Go, Refused}, {0, "a@4", LockoutLeave, 0},
			{27 * m, "a@4", LockoutLeave, 0}, {m, "a@4", Go, Refused}, {0, "a@5", LockoutLeave, 0}, {m, "a@5", Go, Answered},
		},
		"silence doubles": {
			{0, "a@1", Go, Silent}, {s - 1, "a@1", BackoffLeave, 0}, {1, "a@1", Go, Silent}, {2*s - 1, "a@1", BackoffLeave, 0},
			{1, "a@1", Go, Silent}, {3 * s, "b@1", BackoffLeave, 0}, {s, "b@1", Go, Answered}, {0, "a@1", Go, Silent},
			{s, "a@1", Go, Answered},
		},
		"a log-in without an answer may be a refusal": {
			{0, "a@1", Go, Unanswered}, {m - 1, "a@1", BackoffLeave, 0}, {1, "a@1", Go, Unanswered}, {m, "a@1", Go, Unanswered},
			{m, "a@1", LockoutLeave, 0}, {26 * m, "a@2", LockoutLeave, 0}, {m, "a@1", Go, Answered}, {0, "a@1", Go, Answered},
		},
		"accepted before, it is tried once more": {
			{0, "a@1", Go, Doubtful}, {29 * s, "a@1", BackoffLeave, 0}, {s, "a@1", Go, Answered}, {0, "a@1", Go, Doubtful},
			{30 * s, "a@1", Go, Unauthorized}, {0, "a@2", LockoutLeave, 0},
		},
		"silent before, it is starting": {
			{0, "a@1", Go, Silent}, {s, "a@1", Go, Doubtful}, {119 * s, "a@1", BackoffLeave, 0}, {s, "a@1", Go, Answered},
		},
		"refusal is an answer": {{0, "a@1", Go, Silent}, {s, "a@1", Go, Refused}, {0, "a@2", Go, Answered}},
	} {
		now, b := t0, Budget{}
		for i, st := range steps {
			now = now.Add(st.after)
			leave, until := b.Ask(now, st.with)
			if leave != st.want {
				t.Fatalf("%s, step %d: %v, want %v", name, i, leave, st.want)
			}
			if later := leave == BackoffLeave || leave == LockoutLeave; later != until.After(now) {
				t.Errorf("%s, step %d: until %v at %v", name, i, until, now)
			}
			if leave == Go {
				b = b.After(now, st.with, st.then)
			}
		}
	}
	if b := backoff(1000); b != backoffMost {
		t.Errorf("after a thousand silences: %v", b)
	}
}

// Whatever comes: credentials are refused once at most, and never more than three refusals lie within half an hour.
func TestBudgetNeverLocksOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, b := t0, Budget{}
		var refusals []time.Time
		refused := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			with := rapid.SampledFrom([]string{"a@1", "a@2", "b@1", "b@2", "c@1", "c@2", "d@1"}).Draw(t, "with")
			leave, _ := b.Ask(now, with)
			if leave != Go {
				continue
			}
			if refused[with] {
				t.Fatalf("%s is tried again", with)
			}
			o := rapid.SampledFrom([]Outcome{Answered, Refused, Silent, Unanswered}).Draw(t, "outcome")
			before := len(b.Parked)
			next := b.After(now, with, o)
			if len(b.Parked) != before {
				t.Fatal("a budget was changed in place")
			}
			if b = next; o != Refused && o != Unanswered {
				continue
			}
			refused[with] = o == Refused
			refusals = append(refusals, now)
			if n := len(refusals); n > wrongMost && now.Sub(refusals[n-1-wrongMost]) < wrongWithin {
				t.Fatalf("refusals at %v", refusals)
			}
		}
	})
}

func TestDrive(t *testing.T) {
	t.Parallel()
	const on, off, unknown = provider.PowerOn, provider.PowerOff, provider.PowerUnknown
	silent := errors.New("silent")
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	type reading struct {
		second int
		state  provider.PowerState
		err    error
		want   move
	}
	for name, tc := range map[string]struct {
		want     provider.PowerState
		gently   int // seconds
		noSoft   bool
		readings []reading
	}{
		"it is so already": {on, 0, false, []reading{{0, on, nil, moveDone}}},
		"off at once": {off, 0, false, []reading{{0, on, nil, moveHard}, {1, on, nil, moveWait},
			{2, off, nil, moveDone}}},
		"gently": {off, 30, false, []reading{{0, on, nil, moveSoft}, {29, on, nil, moveWait},
			{29, off, nil, moveDone}}},
		"gently, then not": {off, 30, false, []reading{{0, on, nil, moveSoft}, {30, on, nil, moveHard},
			{31, off, nil, moveDone}}},
		"gently is not to be": {off, 30, true, []reading{{0, on, nil, moveHard}, {1, off, nil, moveDone}}},
		"it does not know": {off, 0, false, []reading{{0, unknown, nil, moveHard}, {1, unknown, nil, moveWait},
			{2, off, nil, moveDone}}},
		"a lost switch": {on, 0, false, []reading{
			{0, off, nil, moveHard}, {14, off, nil, moveWait}, {15, off, nil, moveHard}, {29, off, nil, moveWait},
			{30, off, nil, moveHard},
			{46, off, nil, moveWait}, {59, off, nil, moveWait}, {60, off, nil, moveStuck},
		}},
		"silent from the start": {on, 0, false, []reading{{0, unknown, silent, moveWait}, {59, unknown, silent, moveWait},
			{60, unknown, silent, moveGone}}},
		"silent in the end": {on, 0, false, []reading{{0, off, nil, moveHard}, {20, off, silent, moveWait},
			{60, unknown, silent, moveGone}}},
		"silent in between": {on, 0, false, []reading{{0, off, silent, moveWait}, {50, off, nil, moveHard},
			{60, on, nil, moveDone}}},
		"too late is not late": {off, 0, false, []reading{{0, on, nil, moveHard}, {61, off, nil, moveDone}}},
		"a silent BMC is not switched on the strength of an old reading": {off, 0, false, []reading{
			{0, on, nil, moveHard}, {20, on, silent, moveWait}, {40, on, silent, moveWait}, {50, on, nil, moveHard},
		}},
	} {
		d := &powerPlan{want: tc.want, deadline: at(60), noSoft: tc.noSoft}
		if tc.gently > 0 {
			d.gently, d.deadline = at(tc.gently), at(tc.gently+60)
		}
		for i, r := range tc.readings {
			d.read(r.state, r.err)
			got := d.next(at(r.second))
			if got != r.want {
				t.Errorf("%s, reading %d: move %d, want %d", name, i, got, r.want)
				break
			}
			switch got {
			case moveSoft:
				d.softAsked = true
			case moveHard:
				d.asked++
				d.askedAt = at(r.second)
			default:
			}
		}
	}
}

// A machine in PoweringOn or PoweringOff is waited for longer than one that does not move, and not switched again. A
// change that no call asked for is noted, at most eight times.
func TestOnItsWayAndOthers(t *testing.T) {
	t.Parallel()
	const on, off = provider.PowerOn, provider.PowerOff
	at := func(second int) time.Time { return t0.Add(time.Duration(second) * time.Second) }
	d := &powerPlan{want: on, deadline: at(60), lastly: at(300)}
	for _, step := range []struct {
		second int
		state  provider.PowerState
		want   move
	}{{0, off, moveHard}, {1, provider.PowerTurningOn, moveWait}, {59, provider.PowerTurningOn, moveWait},
		{120, provider.PowerTurningOn, moveWait}, {200, on, moveDone}} {
		d.read(step.state, nil)
		if got := d.next(at(step.second)); got != step.want {
			t.Errorf("%v at %d: move %d, want %d", step.state, step.second, got, step.want)
		}
		d.ours = true
	}
	if len(d.others) != 0 {
		t.Errorf("others %v", d.others)
	}
	d.read(provider.PowerTurningOn, nil)
	if got := d.next(at(300)); got != moveStuck {
		t.Errorf("for ever on its way: move %d", got)
	}
	d = &powerPlan{want: off, deadline: at(60), ours: true}
	for range 40 {
		d.read(off, nil)
		d.read(on, nil)
	}
	if len(d.others) != othersMost || d.others[0] != on {
		t.Errorf("others %v", d.others)
	}
}

func TestPollGrowsToASecond(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for round := range 100 {
		now := pollAfter(round)
		if now < last || now > time.Second {
			t.Fatalf("round %d waits %v after %v", round, now, last)
		}
		last = now
	}
	if last != time.Second {
		t.Errorf("in the end %v", last)
	}
}

func TestJitterIsSmallAndSpread(t *testing.T) {
	t.Parallel()
	const every = 30 * time.Second
	seen := map[bool]int{}
	for i := range 200 {
		j := jitter("m-1", t0.Add(time.Duration(i)*every), every)
		if j < -every/10 || j > every/10 {
			t.Fatalf("jitter %v", j)
		}
		seen[j < 0]++
	}
	if min(seen[true], seen[false]) < 50 || jitter("m", t0, 0) != 0 {
		t.Errorf("before and after: %v", seen)
	}
}

// A fan of a machine that is off stands still; a power supply that has failed has failed.
func TestValuesOfAMachineThatIsOffAreNoFaults(t *testing.T) {
	t.Parallel()
	read := []provider.Sensor{{Name: "FAN1", Kind: "fan", Health: "critical"},
		{Name: "PSU2", Kind: "power supply", Stateful: true, State: "Failure", Health: "critical"}}
	if got := atRest(read); got[0].Health != "" || got[1].Health != "critical" || read[0].Health != "critical" {
		t.Errorf("%+v of %+v", got, read)
	}
}
