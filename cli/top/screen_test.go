package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

var now = time.Date(2026, 11, 26, 3, 12, 0, 0, time.UTC)

func machinesOf(n int) (out []*pb.Machine) {
	for i := range n {
		out = append(out, &pb.Machine{MachineId: fmt.Sprintf("m-%d", i), Status: &pb.MachineStatus{
			EffectiveState: pb.MachineStatus_ATTENTION, AttentionReason: "NODE_OFFLINE",
			AttentionMessage: "the agent is silent \x1b[2J and 機械 says so for a long time, over and over and over again",
		}})
	}
	return out
}

func pictureOf(n int) picture {
	return picture{
		machines: machinesOf(n), total: int32(n), at: now,
		server: &pb.ServerInfo{ControllerId: "c-1", FrozenSince: timestamppb.New(now.Add(-time.Hour)),
			FrozenBecause: "a \x1b]0;bad\x07 reason"},
		counts: &pb.CountMachinesResponse{Total: int32(n),
			Groups: []*pb.MachineGroup{{Values: []string{"ATTENTION"}, Count: int32(n)}}},
		why: &pb.ExplainMachineResponse{MachineId: "m-0", Summary: "it waits", Actions: []*pb.OperatorAction{
			{Command: "ingot reboot m-0", Consequence: "it restarts"},
			{Command: "ingot reimage m-0 --image NAME", Consequence: "it is written again", Destructive: true},
			{Command: "ingot x 'a b'", Consequence: "quoted"}, {Command: "see to its power", Consequence: "words"},
		}},
	}
}

// Whatever is typed on whatever terminal: no line is too wide, none too many, the cursor is on a machine, and nothing
// is run without a yes.
func TestAnyKeysOnAnyTerminal(t *testing.T) {
	t.Parallel()
	keys := []string{
		"j",
		"k",
		"g",
		"G",
		"pgdown",
		"pgup",
		"/",
		"o",
		"enter",
		"esc",
		"backspace",
		"1",
		"2",
		"3",
		"4",
		"9",
		"y",
		"n",
		"r",
		"?",
		"m",
		"home",
		"end",
	}
	rapid.Check(t, func(t *rapid.T) {
		s := &screen{style: view.Style{Colour: true}, now: now.Add(time.Minute),
			width: rapid.IntRange(1, 200).Draw(t, "width"), height: rapid.IntRange(1, 60).Draw(t, "height")}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				s.take(pictureOf(rapid.IntRange(0, 80).Draw(t, "machines")))
			case 1:
				s.failure = "the controller does not answer"
			}
			k := rapid.SampledFrom(keys).Draw(t, "key")
			was := s.mode
			if e := s.key(k, k); e.run != "" && (was != confirming || k != "y" || e.run != "ingot reboot m-0") {
				t.Fatalf("%q is run by %q", e.run, k)
			}
			if n := len(s.picture.machines); s.cursor < 0 || s.cursor >= max(1, n) {
				t.Fatalf("the cursor is at %d of %d", s.cursor, n)
			}
			lines := strings.Split(s.text(), "\n")
			if len(lines) > max(1, s.height) {
				t.Fatalf("%d lines on %d", len(lines), s.height)
			}
			for _, l := range lines {
				if view.Width(l) > s.width {
					t.Fatalf("%d columns on %d: %q", view.Width(l), s.width, l)
				}
				if strings.Contains(l, "\x1b[2J") || strings.Contains(l, "\x1b]") {
					t.Fatalf("a machine steers the terminal: %q", l)
				}
			}
		}
	})
}

// An old picture is marked as old, and has no other colours.
func TestWhatIsNotCurrentIsNotGreen(t *testing.T) {
	t.Parallel()
	s := &screen{style: view.Style{Colour: true}, now: now.Add(90 * time.Second), width: 100, height: 10}
	s.take(pictureOf(3))
	if text := s.text(); !strings.Contains(text, "\x1b[1;33m") || !strings.Contains(text, "FROZEN for 1h") {
		t.Errorf("a new picture:\n%s", text)
	}
	s.failure = "no answer"
	if text := s.text(); strings.Contains(text, "\x1b[1;33m") || !strings.Contains(text, "NOT CURRENT for 1m 30s") {
		t.Errorf("an old picture:\n%s", text)
	}
}

// The cursor stays on its machine when others come before it.
func TestTheCursorStaysOnItsMachine(t *testing.T) {
	t.Parallel()
	s := &screen{width: 80, height: 20}
	s.take(pictureOf(5))
	s.key("j", "j")
	p := pictureOf(5)
	p.machines = append(machinesOf(9)[5:], p.machines...)
	s.take(p)
	if got := s.picture.machines[s.cursor].GetMachineId(); got != "m-1" {
		t.Errorf("the cursor is on %s", got)
	}
}

func TestWhatCanBeRun(t *testing.T) {
	t.Parallel()
	for line, runs := range map[string]bool{
		"ingot reboot m-0": true, "ingot node transition m-0 retired --force --comment seen": true,
		"ingot reimage m-0 --image NAME": false, "ingot x 'a b'": false, "see to its power": false, "ingot": false,
		"rm -rf /": false, "ingot watch op-01M8B": true,
	} {
		if _, err := words(line); (err == nil) != runs {
			t.Errorf("%s: %v", line, err)
		}
	}
}
