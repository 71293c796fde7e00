package harness

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Expected is the expected explanation of a fault, written by its author without a look at how the controller finds
// causes.
type Expected struct {
	Fault string
	// Reasons are the names that the cause may go by: one, or several where they mean the same here.
	Reasons []string
	// On is who must act, or is waited for.
	On string
	// Says are words that must be in the answer.
	Says []string
	// Do are words of an action that must be offered; empty where none is asked for.
	Do string
	// Stuck: it must be said that this takes longer than is normal.
	Stuck bool
}

// Judge returns the errors of an answer.
func (x Expected) Judge(e *baremetalv1.ExplainMachineResponse) (wrong []string) {
	if !slices.Contains(x.Reasons, e.GetReason()) {
		wrong = append(wrong, fmt.Sprintf("reason %q, want %q", e.GetReason(), x.Reasons))
	}
	if e.GetWaitsOn() != x.On {
		wrong = append(wrong, fmt.Sprintf("waits on %q, want %q", e.GetWaitsOn(), x.On))
	}
	text := strings.ToLower(strings.Join(append([]string{e.GetSummary(), e.GetCause(), e.GetWaitsFor()}, e.GetFacts()...),
		"\n"))
	for _, w := range x.Says {
		if !strings.Contains(text, strings.ToLower(w)) {
			wrong = append(wrong, fmt.Sprintf("does not say %q", w))
		}
	}
	does := func(a *baremetalv1.OperatorAction) bool {
		return strings.Contains(a.GetCommand(), x.Do) && a.GetConsequence() != ""
	}
	if x.Do != "" && !slices.ContainsFunc(e.GetActions(), does) {
		wrong = append(wrong, fmt.Sprintf("does not offer %q", x.Do))
	}
	if x.Stuck && !e.GetStuck() {
		wrong = append(wrong, "does not say that it takes long")
	}
	return wrong
}

// noticing is how long the system may take to see a fault once it is there.
const noticing = 30 * time.Second

// Answers collects what was said of faults.
type Answers struct {
	mu  sync.Mutex
	all []answered
}

type answered struct {
	Expected
	got   *baremetalv1.ExplainMachineResponse
	wrong []string
}

// Ask waits until the system has noticed the fault, and keeps its last answer.
func (a *Answers) Ask(t *testing.T, x Expected, ask func() *baremetalv1.ExplainMachineResponse) {
	t.Helper()
	one := answered{Expected: x}
	for end := time.Now().Add(noticing); ; {
		one.got = ask()
		one.wrong = x.Judge(one.got)
		if len(one.wrong) == 0 || time.Now().After(end) {
			break
		}
		<-time.After(200 * time.Millisecond)
	}
	if len(one.wrong) > 0 {
		t.Logf("%s: %s\n%v", x.Fault, strings.Join(one.wrong, "; "), one.got)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, one)
}

// Table prints what was said, and holds that at least 19 in 20 are right.
func (a *Answers) Table(t *testing.T) {
	t.Helper()
	slices.SortFunc(a.all, func(x, y answered) int { return strings.Compare(x.Fault, y.Fault) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nFAULT\tREASON\tWAITS ON\tRIGHT\tIN WORDS")
	right := 0
	for _, x := range a.all {
		verdict := "yes"
		if len(x.wrong) == 0 {
			right++
		} else {
			verdict = "NO: " + strings.Join(x.wrong, "; ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.160s\n", x.Fault, x.got.GetReason(), x.got.GetWaitsOn(), verdict,
			x.got.GetSummary())
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s%d of %d right", &b, right, len(a.all))
	if len(a.all) == 0 || right*20 < 19*len(a.all) {
		t.Errorf("why named the right cause of %d in %d faults", right, len(a.all))
	}
}
