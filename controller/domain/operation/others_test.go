package operation_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// seen is a change of the power, so long after the start of the operation.
func seen(state string, after time.Duration) operation.PowerSeen {
	return operation.PowerSeen{State: state, At: t0.Add(after)}
}

// TestOthersWhoSwitchTheMachine: a change of the power is of others, where no command of the operation was to make it
// at that time. Each is noted once, with its time, and nothing else of the operation changes.
func TestOthersWhoSwitchTheMachine(t *testing.T) {
	t.Parallel()
	left := func(key string) map[string]string { return map[string]string{key: "t"} }
	const goes = operation.Running
	on, off := left(evidence.PowerOnSeenAt), left(evidence.PowerOffSeenAt)
	both := map[string]string{evidence.PowerOffSeenAt: "t", evidence.PowerOnSeenAt: "t"}
	running := &operation.Command{Kind: kind.Reboot, State: operation.Granted}
	over := func(k kind.Kind, of map[string]string) *operation.Command {
		return &operation.Command{Kind: k, State: operation.Done, FinishedAt: t0.Add(time.Minute), Evidence: of}
	}
	for name, c := range map[string]struct {
		phase   operation.Phase
		of      map[string]string
		command *operation.Command
		e       operation.PowerSeen
		others  bool
	}{
		"without a command":          {goes, nil, nil, seen("off", 1), true},
		"on, without a command":      {goes, nil, nil, seen("on", 1), true},
		"at the start":               {goes, nil, nil, seen("off", 0), false},
		"before the start":           {goes, nil, nil, seen("off", -1), false},
		"of one that has not begun":  {operation.Pending, nil, nil, seen("off", 1), false},
		"of one that has ended":      {operation.Succeeded, nil, nil, seen("off", 1), false},
		"a reboot is under way":      {goes, nil, running, seen("off", time.Hour), false},
		"a configuration is":         {goes, nil, &operation.Command{Kind: kind.Net}, seen("off", 1), true},
		"while it was rebooted":      {goes, nil, over(kind.Reboot, nil), seen("off", time.Second), false},
		"as the reboot ended":        {goes, nil, over(kind.Reboot, nil), seen("on", time.Minute+time.Second), false},
		"after the reboot":           {goes, nil, over(kind.Reboot, nil), seen("on", time.Minute+time.Second+1), true},
		"after a configuration":      {goes, nil, over(kind.Net, nil), seen("on", time.Second), true},
		"as a command left it: on":   {goes, nil, over(kind.PowerOn, on), seen("on", time.Hour), false},
		"off, and it was left on":    {goes, nil, over(kind.PowerOn, on), seen("off", time.Hour), true},
		"as a command left it: off":  {goes, nil, over(kind.PowerOff, off), seen("off", time.Hour), false},
		"on, and it was left off":    {goes, nil, over(kind.PowerOff, off), seen("on", time.Hour), true},
		"as an earlier step left it": {goes, off, nil, seen("off", time.Hour), false},
		"not as that left it":        {goes, off, nil, seen("on", time.Hour), true},
		"left off, and then on":      {goes, both, nil, seen("off", time.Hour), true},
	} {
		op := operation.Operation{Phase: c.phase, StartedAt: t0, Evidence: maps.Clone(c.of)}
		text := operation.PowerByOthers(&op, c.command, c.e)
		want := maps.Clone(c.of)
		if c.others {
			want = map[string]string{evidence.PowerChangesSeen: c.e.State + " at " + c.e.At.Format(time.RFC3339)}
			maps.Copy(want, c.of)
		}
		if (text != "") != c.others || !maps.Equal(op.Evidence, want) {
			t.Errorf("%s: noted %q, evidence %v, want %v", name, text, op.Evidence, want)
		}
		if c.others && !strings.Contains(text, "is "+c.e.State) {
			t.Errorf("%s: the note is %q", name, text)
		}
		if again := operation.PowerByOthers(&op, c.command, c.e); again != "" {
			t.Errorf("%s: noted twice, %q", name, again)
		}
	}
}

// TestMostChangesThatAreNoted: more are no news.
func TestMostChangesThatAreNoted(t *testing.T) {
	t.Parallel()
	stored := map[string]string{"boot_id": "b"}
	op := operation.Operation{Phase: operation.Running, StartedAt: t0, Evidence: stored}
	noted := 0
	for i := range 20 {
		if operation.PowerByOthers(&op, nil, seen([]string{"on", "off"}[i%2], time.Duration(i+1)*time.Minute)) != "" {
			noted++
		}
	}
	list := strings.Split(op.Evidence[evidence.PowerChangesSeen], ", ")
	if noted != len(list) || noted != 8 || list[1] != "off at 2026-03-01T12:02:00Z" {
		t.Errorf("%d are noted: %q", noted, list)
	}
	if op.Evidence["boot_id"] != "b" || len(stored) != 1 {
		t.Errorf("the evidence is %v, and the stored one %v", op.Evidence, stored)
	}
}

// TestOthersWhoSwitchedDuringACommand: the first result of a granted command is news of it, and no other one.
func TestOthersWhoSwitchedDuringACommand(t *testing.T) {
	t.Parallel()
	said := operation.Resulted{Evidence: map[string]string{evidence.PowerByOthers: "on at noon"}}
	for _, state := range allCommandStates {
		got := operation.SwitchedByOthers(&operation.Command{State: state}, said)
		if want := state == operation.Granted; strings.Contains(got, "on at noon") != want || !want && got != "" {
			t.Errorf("%s: %q", state, got)
		}
	}
	if got := operation.SwitchedByOthers(&operation.Command{State: operation.Granted, ClaimedAt: t0}, said); got != "" {
		t.Errorf("claimed before: %q", got)
	}
	if got := operation.SwitchedByOthers(&operation.Command{State: operation.Granted}, operation.Resulted{}); got != "" {
		t.Errorf("of an executor that has seen none: %q", got)
	}
}

// TestAnAskThatComesAgain: it is the same ask where number, command and nonce are the same.
func TestAnAskThatComesAgain(t *testing.T) {
	t.Parallel()
	e := operation.GrantAsked{Seq: 7, CommandID: "c", Nonce: []byte("n")}
	for _, c := range []struct {
		e     operation.GrantAsked
		seq   uint64
		id    string
		nonce string
		want  bool
	}{
		{e, 7, "c", "n", true}, {e, 8, "c", "n", false}, {e, 7, "d", "n", false}, {e, 7, "c", "m", false},
		{e, 7, "c", "", false}, {operation.GrantAsked{Seq: 7, CommandID: "c"}, 7, "c", "", false},
	} {
		if got := c.e.Repeats(c.seq, c.id, []byte(c.nonce)); got != c.want {
			t.Errorf("%+v repeats %d of %s with %q: %t", c.e, c.seq, c.id, c.nonce, got)
		}
	}
}

// TestWhoCancels: the actor, and the reason where there is one.
func TestWhoCancels(t *testing.T) {
	t.Parallel()
	for e, want := range map[operation.CancelAsked]string{
		{Actor: "x"}: "by x", {Actor: "x", Why: "blocked"}: "by x: blocked",
	} {
		if got := e.By(); got != want {
			t.Errorf("%+v: %q", e, got)
		}
	}
}

// TestBackoffDoublesUpToHalfAMinute: the first retry waits half a second.
func TestBackoffDoublesUpToHalfAMinute(t *testing.T) {
	t.Parallel()
	var got []string
	for retry := 1; retry <= 9; retry++ {
		got = append(got, operation.Backoff(retry).String())
	}
	if want := "[500ms 1s 2s 4s 8s 16s 30s 30s 30s]"; fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
}
