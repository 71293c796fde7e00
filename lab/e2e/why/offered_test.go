package why

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// situation is a state of a machine that real events bring about.
type situation struct {
	name string
	// short: it is one of the few that every run of the tests brings about.
	short bool
	// rule is the rule of controller/domain/explain that answers once the state is there.
	rule string
	// arrange brings the state about on a new machine. The test waits for rule afterwards.
	arrange func(t *testing.T, r *whyRig) subject
}

// subject is the object of a question.
type subject struct {
	// r is the rig that the machine is part of: one of its own, where the state is the whole fleet's.
	r       *whyRig
	machine string
	// operation is asked about by its id, where one is given.
	operation string
	rollout   string
	// of is the simulated machine, nil where there is none.
	of *harness.Machine
}

// offer is one action that is offered somewhere.
type offer struct {
	// by is who offers it: "why", "workflow", "node", "rollout", or "refusal of …".
	by, rule, command string
}

// ids that differ between two copies of one situation.
var offeredIDs = regexp.MustCompile(
	`\b(m|op|cmd|wf|ro|rollout|agent|agt|a|site|req|plan|once)-[0-9a-z-]*[0-9a-z]{16,}\b|\b(maas)-[0-9a-f]{12}\b|(--digest) [0-9a-f]{64}\b`,
)

// key is the same for the same offer in another copy of the situation.
func (o offer) key(s subject) string {
	text := strings.ReplaceAll(o.command, s.machine, "MACHINE")
	return o.by + ": " + offeredIDs.ReplaceAllString(text, "$1$2$3-ID")
}

func (s subject) explain(t *testing.T) *baremetalv1.ExplainMachineResponse {
	t.Helper()
	r := &baremetalv1.ExplainMachineRequest{MachineId: s.machine}
	if s.operation != "" {
		r = &baremetalv1.ExplainMachineRequest{OperationId: s.operation}
	}
	return harness.Must(t, s.r.Machines().ExplainMachine, r)
}

// reach brings the situation about, and waits until it is known.
func (x situation) reach(t *testing.T, r *whyRig) (subject, *baremetalv1.ExplainMachineResponse) {
	t.Helper()
	s := x.arrange(t, r)
	if s.r == nil {
		s.r = r
	}
	var e *baremetalv1.ExplainMachineResponse
	testkit.Eventually(t, rig.Soon, func() bool {
		e = s.explain(t)
		return e.GetRule() == x.rule
	}, "rule %s does not answer: %v", x.rule, rig.Stringer(func() string { return e.String() }))
	return s, e
}

// offers collects the offers of a situation from all sources, once they stay the same: under one rule a command moves
// on.
func (s subject) offers(t *testing.T, e *baremetalv1.ExplainMachineResponse) (out []offer) {
	t.Helper()
	same := 0
	testkit.Eventually(t, rig.Soon, func() bool {
		before := out
		if out = s.offersNow(t, e); slices.Equal(before, out) {
			same++
		} else {
			same = 0
		}
		return same == 5
	}, "what is offered does not stay the same: %v", rig.Stringer(func() string { return fmt.Sprint(out) }))
	return out
}

func (s subject) offersNow(t *testing.T, e *baremetalv1.ExplainMachineResponse) []offer {
	t.Helper()
	var out []offer
	add := func(by, command string) { out = append(out, offer{by: by, rule: e.GetRule(), command: command}) }
	for _, a := range e.GetActions() {
		add("why", a.GetCommand())
	}
	for _, w := range harness.Must(t, s.r.Workflows().ListWorkflows,
		&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + s.machine}).GetWorkflows() {
		one := harness.Must(t, s.r.Workflows().GetWorkflow, &baremetalv1.GetWorkflowRequest{WorkflowId: w.GetWorkflowId()})
		for _, a := range one.GetLegalActions() {
			name := strings.ToLower(strings.TrimPrefix(a.String(), "WORKFLOW_ACTION_"))
			add("workflow", "ingot workflow act "+w.GetWorkflowId()+" "+strings.ReplaceAll(name, "_", "-"))
		}
		recommendedIsLegal(t, one)
	}
	n := harness.Must(t, s.r.Nodes().GetNode, &baremetalv1.GetNodeRequest{NodeId: s.machine})
	for _, to := range n.GetNextStates() {
		add("node", "ingot node transition "+s.machine+" "+strings.ToLower(strings.TrimPrefix(to.String(), "NODE_STATE_"))+
			" --force --comment seen")
	}
	if s.rollout != "" {
		_, page := s.r.Ingot("rollout", "get", s.rollout)
		for _, line := range commandsIn(page) {
			add("rollout", line)
		}
	}
	return out
}

// recommendedIsLegal holds that an action that a recommendation names is one of the legal ones. What comes after ",
// then" is for when the first part is done.
func recommendedIsLegal(t *testing.T, w *baremetalv1.Workflow) {
	t.Helper()
	now, _, _ := strings.Cut(w.GetRecommendedAction(), ", then ")
	for name := range baremetalv1.WorkflowAction_value {
		word := strings.ToLower(strings.TrimPrefix(name, "WORKFLOW_ACTION_"))
		named := regexp.MustCompile(`\b` + word + `\b`).MatchString(now)
		if named &&
			!slices.Contains(w.GetLegalActions(), baremetalv1.WorkflowAction(baremetalv1.WorkflowAction_value[name])) {
			t.Errorf("workflow at %s, %s: %q is recommended, and legal are %v", w.GetCurrentStage(), w.GetState(),
				w.GetRecommendedAction(), w.GetLegalActions())
		}
	}
}

// commandLine is a command of ingot in a text: in backticks, or up to a full stop, comma, semicolon or two blanks.
var commandLine = regexp.MustCompile("`(ingot [^`]+)`|(?:^|[:,;] |To [a-z ]+: )(ingot [a-z-]+(?: [^,;:. \n]+)*)")

func commandsIn(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		for part := range strings.SplitSeq(line, "   ") {
			for _, m := range commandLine.FindAllStringSubmatch(strings.TrimSpace(part), -1) {
				out = append(out, m[1]+m[2])
			}
		}
	}
	return out
}

// tried is what became of one offer.
type tried struct {
	situation string
	offer     offer
	key, how  string
}

// ledger is what was reached and tried.
type ledger struct {
	mu      sync.Mutex
	reached map[string]bool
	begun   map[string]bool
	all     []tried
}

// first reports whether key was not asked for before.
func (l *ledger) first(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.begun[key]
	l.begun[key] = true
	return !known
}

func (l *ledger) add(x situation, o offer, key, how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, tried{x.name, o, key, how})
}

func (l *ledger) mark(rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reached[rule] = true
}

// table prints which actions were tried, by the rule that answers and by who offers them.
func (l *ledger) table(t *testing.T, situations int) {
	t.Helper()
	count := map[string]int{}
	for _, x := range l.all {
		count[fmt.Sprintf("%s\t%s\t%s", x.offer.rule, x.key, x.how)]++
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nRULE\tOFFER\tOUTCOME\tTIMES")
	for _, line := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(w, "%s\t%d\n", line, count[line])
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s%d actions tried in %d situations", &b, len(l.all), situations)
}

// passing are rules that no situation here reaches, each with the reason. Their command lines are held by
// controller/domain/explain/rules TestActionsAreCommandLines, and what they offer besides `ingot watch` and `ingot
// cancel` is offered by rules that are reached.
var passing = map[string]string{
	"pending":          "a controller begins within a second",
	"between-steps":    "a controller goes on within a second",
	"grant":            "an agent asks for leave as soon as it has acknowledged",
	"not-acknowledged": "an agent that is connected acknowledges at once",
	"executor-locked":  "a locked agent refuses a command at once, and the operation ends",
	"not-started": "nobody begins for 15 seconds: TestWhyOfControllersThatDoNoWork does it, with a controller " +
		"that fails",
	"nobody-looks": "as not-started",
	"evidence": "the claim and its refutation come from one boot: lab TestLifeWhy does it, with virtual " +
		"machines",
	"quarantined-under-way": "a quarantine cancels what is under way in the same call",
	"blocked-under-way":     "a flag cancels what is under way in the same call",
	"site": "needs a site that serves a segment: lab TestWhyOfAMachineThatDoesNotBoot does it, with " +
		"virtual machines",
	"installer": "as site",
	"booting":   "as site; it only offers the operation's log",
	"probe-silent": "needs a machine that is installed without an agent: lab TestMetalStockAgentless installs one, with " +
		"virtual machines",
	"not-observed": "needs a site whose agent is silent: lab/e2e/silence TestASilentSite kills one",
	"unowned": "a controller moves such a node within a minute: controller/store/node TestRepairOfOwnerlessNodes " +
		"does it",
	"drift": "an agent looks every three minutes: agent/executor/reconfig TestDriftIsWhatSomebodyElseHasChanged and " +
		"controller/store/operation TestDriftShows do it",
	"hardware-fault": "needs a BMC: lab/e2e/bmcs TestAFaultIsShownUntilItIsOver does it",
	"raid-degraded":  "needs a mirror that loses a disk: lab TestMetalMirror does it, with virtual machines",
	"intervention":   "needs a cause that no operation has left",
}

// TestEveryOfferedActionSucceeds brings about the states that a machine can be in. It collects the offers of `why`,
// workflows, node pages and rollouts there, and takes each action in a new copy of that state. It prints which actions
// of which rule it took. Without the build tag offers, it does so for a few states.
func TestEveryOfferedActionSucceeds(t *testing.T) {
	t.Parallel()
	r := newWhyRig(t)
	disk := subject{}.file(t, string(rig.WholeDisk(1<<20)))
	if code, out := r.Ingot("image", "add", "system-1", disk); code != 0 {
		t.Fatalf("image add: exit code %d\n%s", code, out)
	}
	l := &ledger{reached: map[string]bool{}, begun: map[string]bool{}}
	var mu sync.Mutex
	left := map[string][]string{}
	all := slices.DeleteFunc(situations(), func(x situation) bool { return !everyOffer && !x.short })
	t.Run("reach", func(t *testing.T) {
		for _, x := range all {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				s, e := x.reach(t, r)
				l.mark(x.rule)
				t.Logf("%s: %s\n%s", e.GetRule(), e.GetSummary(),
					strings.Join(append([]string{e.GetCause()}, e.GetFacts()...), "\n  - "))
				var changing []string
				taken := map[string]bool{} // each command once, whatever its source
				for _, o := range s.offers(t, e) {
					key := o.key(s)
					switch {
					case reads(o.command):
						l.add(x, o, key, s.take(t, o))
					case taken[o.command]:
					case o.foretells() && !l.first(o.rule+strings.TrimPrefix(key, o.by)):
						l.add(x, o, key, s.take(t, offer{o.by, o.rule, o.command + " --dry-run"}))
					default:
						changing = append(changing, key)
					}
					taken[o.command] = true
				}
				mu.Lock()
				defer mu.Unlock()
				left[x.name] = changing
			})
		}
	})
	t.Run("act", func(t *testing.T) {
		for _, x := range all {
			for _, key := range left[x.name] {
				t.Run(x.name+"/"+key, func(t *testing.T) {
					t.Parallel()
					s, e := x.reach(t, r)
					for _, o := range s.offers(t, e) {
						if o.key(s) == key {
							l.add(x, o, key, s.take(t, o))
							return
						}
					}
					t.Errorf("%s is not offered in another copy of the situation: %v", key, e.GetOperatorActions())
				})
			}
		}
	})
	l.table(t, len(all))
	if !everyOffer {
		return
	}
	for _, rule := range rules.RuleNames() {
		if why := passing[rule]; !l.reached[rule] && why == "" {
			t.Errorf("no situation reaches rule %s", rule)
		} else if l.reached[rule] && why != "" {
			t.Errorf("rule %s is reached, and counts as passing: %s", rule, why)
		}
	}
}

// foretells reports whether the call takes --dry-run: all of it is done then, and taken back. One copy of a situation
// serves for all such offers, and each is taken for real once for each rule.
func (o offer) foretells() bool {
	return strings.HasPrefix(o.command, "ingot node transition ") || strings.HasPrefix(o.command, "ingot workflow act ")
}

// readers are commands that change nothing, or nothing that a later action in the same state would notice.
var readers = []string{
	"ingot why ", "ingot watch ", "ingot logs ", "ingot site get ", "ingot site leases ", "ingot site discovered ",
	"ingot agent list",
	"ingot commands ", "ingot machine inventory ", "ingot machine get ", "ingot image show ", "ingot image list",
	"ingot audit ", "ingot server info",
	"ingot budget slots", "ingot cluster get ", "ingot cluster list", "ingot maas list", "ingot rollout get ",
	"ingot rollout machines ",
	"ingot ops get ", "ingot workflow get ", "ingot node get ", "ingot plan list", "ingot node history ",
}

func reads(command string) bool {
	return !strings.HasPrefix(command, "ingot ") ||
		slices.ContainsFunc(readers, func(p string) bool { return strings.HasPrefix(command, p) })
}
