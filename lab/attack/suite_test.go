package attack

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/measure"
)

var (
	long    = flag.Bool("long", false, "make each attempt with its full numbers")
	program = flag.String("controller", "",
		"attack this controller instead of this tree's, to see what another version lets happen")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(politeVariable); text != "" {
		if err := bePolite(text); err != nil {
			panic(err)
		}
		return
	}
	flag.Parse()
	if err := testkit.OwnServer(); err != nil {
		panic(err)
	}
	code := testkit.Run(m)
	harness.RemoveBinaries()
	os.Exit(code)
}

// Party is who attacks.
type Party string

// The parties, in the order of the table.
const (
	Reader   Party = "a client with read"
	Operator Party = "a client with operate"
	Admin    Party = "an admin"
	Host     Party = "a host agent"
	Site     Party = "a site agent"
	Box      Party = "a box on a provisioning segment"
	Stranger Party = "anybody who reaches a port"
)

// parties are all of them, with what each may do at worst.
var parties = []struct {
	Party Party
	May   string
}{
	{Reader, "see the fleet without secrets"},
	{Operator, "work on the machines that its token names, within budgets"},
	{Admin, "anything, in the audit log with source address"},
	{Host, "harm its own machine, report about it"},
	{Site, "harm machines of its own site"},
	{Box, "spend the DHCP pool up to its share"},
	{Stranger, "be counted and cut off"},
}

// The bounds that hold where an Attempt names no others.
const (
	// mostMemory is what an attempt may add to the controller's resident memory over idle, in bytes.
	mostMemory = 64 * measure.MiB
	// mostWait is the p99 of the calls of a well-behaved client meanwhile. The short form has few calls, and other tests
	// beside it: there it is shortWait.
	mostWait, shortWait = time.Second, 8 * time.Second
	// mostTime is how long one attempt may take.
	mostTime = 2 * time.Minute
)

// Attempt is one thing that one party tries: a row of the table.
type Attempt struct {
	Party   Party
	Attempt string
	// Rule is the number of the rule that the attempt is about. 1 is credentials, 2 identity, 3 listeners, 4 reports, 5
	// growth, 6 downloads, 7 audit log, 8 tokens, 9 sign-on. 10 is dependencies, 11 ends of certificates, 12 fields that
	// rights depend on, 13 identity. 14 is selections of tokens, 15 machines out of service, 18 tools of ours.
	Rule int
	// Run makes the attempt. It returns an error when it could not be made.
	Run func(ctx context.Context, r *Rig) (Outcome, error)
	// NotBuilt is the missing part where there is no Run.
	NotBuilt string
	// Memory replaces mostMemory where it is not 0.
	Memory int64
	// Time replaces mostTime where it is not 0.
	Time time.Duration
	// Config is added to the controller's configuration file.
	Config string
}

// Outcome is what came of an attempt.
type Outcome struct {
	// Breach: what must never be, was.
	Breach bool
	// Text describes the result, for the table.
	Text string
}

// held is the outcome of an attempt that gained nothing that its party may not have.
func held(format string, args ...any) Outcome { return Outcome{Text: fmt.Sprintf(format, args...)} }

// breached is the outcome that must never be.
func breached(format string, args ...any) Outcome {
	return Outcome{Breach: true, Text: fmt.Sprintf(format, args...)}
}

// attempts are all rows, area by area.
func attempts() []Attempt {
	return slices.Concat(
		strangerAttempts(),
		agentAttempts(),
		rightsAttempts(),
		siteAttempts(),
		identityAttempts(),
		tokenAttempts(),
		installerAttempts(),
		addressAttempts(),
		packageAttempts(),
		stringAttempts(),
		toolAttempts(),
		selectionAttempts(),
		randomAttempts(),
		approvalAttempts(),
		fieldAttempts(),
		serviceAttempts(),
		doorAttempts(),
	)
}

// row is an attempt with its measurements.
type row struct {
	Attempt
	Outcome
	peak   int64
	took   time.Duration
	polite measure.Latency
}

// TestAttacks makes every attempt, and prints the table.
func TestAttacks(t *testing.T) {
	var rows []row
	for _, a := range attempts() {
		if a.Run == nil {
			rows = append(rows, row{Attempt: a, Outcome: held("not built: %s", a.NotBuilt)})
			continue
		}
		t.Run(string(a.Party)+": "+a.Attempt, func(t *testing.T) {
			if r, ok := a.try(t); ok {
				rows = append(rows, r)
			}
		})
	}
	printTable(t, rows)
}

// try makes one attempt against a controller of its own, and holds it to its bounds.
func (a Attempt) try(t *testing.T) (row, bool) {
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(a.Time, mostTime))
	defer cancel()
	r := newRig(t, a.Config)
	idle := r.idle(ctx)
	polite := r.behave()
	began := time.Now()
	outcome, err := a.Run(ctx, r)
	took := time.Since(began)
	latency, refused := polite.stop()
	if err != nil {
		t.Errorf("the attempt could not be made: %v", err)
		return row{}, false
	}
	peak, err := measure.Peak(r.pid())
	if err != nil {
		t.Errorf("the controller has ended: %v", err)
		return row{}, false
	}
	// Attacked or not, the audit log and the histories are as they were written.
	r.C.Intact()
	out := row{Attempt: a, Outcome: outcome, peak: peak - idle, took: took, polite: latency}
	if outcome.Breach {
		t.Errorf("rule %d: %s", a.Rule, outcome.Text)
	}
	if most := cmp.Or(a.Memory, mostMemory); out.peak > most {
		t.Errorf("rule %d: the controller held %d MiB more than the %d MiB of idle, which is over %d MiB",
			a.Rule, out.peak/measure.MiB, idle/measure.MiB, most/measure.MiB)
	}
	if refused != nil {
		t.Errorf("a well-behaved client was refused meanwhile: %v", refused)
	}
	wait := shortWait
	if *long {
		wait = mostWait
	}
	if p99 := time.Duration(latency.P99 * float64(time.Millisecond)); p99 > wait {
		t.Errorf("the p99 of a well-behaved client was %v", p99)
	}
	return out, true
}

func printTable(t *testing.T, rows []row) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "party\tattempt\trule\toutcome\tpeak memory over idle\ttime\tp99 of others")
	for _, p := range parties {
		for _, r := range rows {
			if r.Party != p.Party {
				continue
			}
			if r.Run == nil {
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t-\t-\t-\n", r.Party, r.Attempt.Attempt, r.Rule, r.Text)
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.1f MiB\t%.1f s\t%.0f ms\n", r.Party, r.Attempt.Attempt, r.Rule, r.Text,
				float64(r.peak)/measure.MiB, r.took.Seconds(), r.polite.P99)
		}
	}
	w.Flush()
	fmt.Fprintln(t.Output(), out.String())
}

// TestTheTableIsComplete holds that each party attacks, and that each rule is attacked or said not to be built.
func TestTheTableIsComplete(t *testing.T) {
	t.Parallel()
	tried, ruled := map[Party]bool{}, map[int]bool{}
	for _, a := range attempts() {
		if !slices.ContainsFunc(parties, func(p struct {
			Party Party
			May   string
		}) bool {
			return p.Party == a.Party
		}) {
			t.Errorf("%s: %q is no party", a.Attempt, a.Party)
		}
		if (a.Run == nil) == (a.NotBuilt == "") {
			t.Errorf("%s: a row has either Run or NotBuilt", a.Attempt)
		}
		tried[a.Party], ruled[a.Rule] = true, true
	}
	for _, p := range parties {
		if !tried[p.Party] {
			t.Errorf("%s tries nothing", p.Party)
		}
	}
	// Rule 10 is about the program itself: the invariants hold it.
	for rule := range 9 {
		if !ruled[rule+1] {
			t.Errorf("rule %d is attacked by nobody", rule+1)
		}
	}
}
