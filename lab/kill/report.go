package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/kill/judge"
)

// counts are how often each of some names occurs.
type counts map[string]int

func (c counts) String() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		out = append(out, fmt.Sprintf("%s %d", k, c[k]))
	}
	return strings.Join(out, ", ")
}

// findings returns the violations of a record. A run in which nothing happened proves nothing, and is one too.
func findings(h judge.Record) []check.Violation {
	found := judge.Judge(h)
	operations, faults := tally(h)
	for name, n := range map[string]int{
		"operation that succeeded": operations["SUCCEEDED"], "fault that took": len(faults), "effect": len(h.Effects),
		"explanation": len(h.Explanations),
	} {
		if n == 0 {
			found = append(found, check.Violation{Rule: "something-happened", Subject: "the run", What: "there is no " + name})
		}
	}
	for kind, n := range idle(h) {
		found = append(found, check.Violation{Rule: "something-happened", Subject: "the run",
			What: fmt.Sprintf("%s was tried %d times, and has changed nothing", kind, n)})
	}
	return found
}

// idle returns the kinds of faults that were tried several times and were never seen to change anything.
func idle(h judge.Record) counts {
	const several = 3
	_, took := tally(h)
	tried := counts{}
	for _, f := range h.Faults {
		if h.Header.Steppable || !strings.HasPrefix(f.Kind, "step-") {
			tried[f.Kind]++
		}
	}
	maps.DeleteFunc(tried, func(kind string, n int) bool { return n < several || took[kind] > 0 })
	return tried
}

func tally(h judge.Record) (operations, faults counts) {
	operations, faults = counts{}, counts{}
	for _, o := range h.Operations {
		operations[o.GetPhase().String()]++
	}
	for _, f := range h.Faults {
		if f.Took {
			faults[f.Kind]++
		}
	}
	return operations, faults
}

// report prints the work, the faults, the explanations and the violations of a run.
func report(w io.Writer, o options, h judge.Record, found []check.Violation) {
	operations, faults := tally(h)
	calls, types, errs, rules, attention := counts{}, counts{}, counts{}, counts{}, counts{}
	for _, c := range h.Calls {
		calls[string(c.Method)+" "+string(c.Outcome)]++
	}
	for _, x := range h.Operations {
		types[x.GetType().String()]++
		if x.GetError().GetCode() != "" {
			errs[x.GetError().GetCode()]++
		}
	}
	live := 0
	for _, e := range h.Explanations {
		if e.Live {
			live++
		}
		if e.Answer != nil {
			rules[e.Answer.GetRule()]++
		} else {
			rules["(shared)"]++
		}
	}
	for _, m := range h.Machines {
		if m.GetStatus().GetEffectiveState() == baremetalv1.MachineStatus_ATTENTION {
			attention[m.GetStatus().GetAttentionReason()]++
		}
	}
	fmt.Fprintf(w, "machines     %d, %d of them with an agent; clients %d; %v, %v with all around it\n", len(h.Machines),
		o.hosts, o.clients, o.duration, h.Header.At.Sub(h.Header.Begun).Round(time.Second))
	for _, line := range []struct {
		name string
		counts
	}{
		{"faults", faults}, {"calls", calls}, {"operations", operations}, {"types", types}, {"errors", errs},
		{"attention", attention}, {"why", rules},
	} {
		fmt.Fprintf(w, "%-12s %v\n", line.name, line.counts)
	}
	fmt.Fprintf(
		w,
		"effects      %d records; histories verified %d; explanations judged %d, %d of them asked while faults "+
			"struck\n",
		len(h.Effects),
		len(h.Verdicts),
		len(h.Explanations),
		live,
	)
	byRule := counts{}
	const shown = 15 // of each rule
	for _, v := range found {
		if byRule[v.Rule]++; byRule[v.Rule] <= shown {
			fmt.Fprintln(w, v)
		}
	}
	fmt.Fprintf(w, "violations   %d %v\n", len(found), byRule)
}

// Files of a kept run.
const (
	historyFile = "history.jsonl"
	whyFile     = "why.jsonl"
)

// answer is one line of the file of explanations; one of its parts is set.
type answer struct {
	Explanation *judge.Explanation `json:"explanation,omitempty"`
	Machine     json.RawMessage    `json:"machine,omitempty"`
	Answer      json.RawMessage    `json:"answer,omitempty"`
	Shared      json.RawMessage    `json:"shared,omitempty"`
	World       *judge.World       `json:"world,omitempty"`
	Agents      map[string]string  `json:"agents,omitempty"`
}

// keepHistory writes the record below dir.
func keepHistory(dir string, h judge.Record) (err error) {
	f, err := os.Create(filepath.Join(dir, historyFile))
	if err != nil {
		return err
	}
	if err := errors.Join(h.Write(f), f.Close()); err != nil {
		return err
	}
	if f, err = os.Create(filepath.Join(dir, whyFile)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	enc := json.NewEncoder(f)
	lines := []answer{{Agents: h.Agents}}
	for _, e := range h.Explanations {
		lines = append(lines, answer{Explanation: &e, Machine: encoded(e.Machine), Answer: encoded(e.Answer),
			Shared: encoded(e.Shared)})
	}
	for _, w := range h.World {
		lines = append(lines, answer{World: &w})
	}
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns a message as JSON; nothing for one that is not set.
func encoded(m proto.Message) json.RawMessage {
	if !m.ProtoReflect().IsValid() {
		return nil
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err)) // every message that was received can be encoded
	}
	return b
}

// rejudge judges the record below dir again.
func rejudge(dir string, w io.Writer) error {
	h, err := readRecord(dir)
	if err != nil {
		return err
	}
	found := findings(h)
	report(w, options{hosts: h.Header.Agents - 1}, h, found)
	if len(found) > 0 {
		return fmt.Errorf("%d violations", len(found))
	}
	return nil
}

func readRecord(dir string) (h judge.Record, err error) {
	f, err := os.Open(filepath.Join(dir, historyFile))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if h.History, err = check.Read(f); err != nil {
		return h, err
	}
	g, err := os.Open(filepath.Join(dir, whyFile))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	const maxLine = 4 << 20
	scan := bufio.NewScanner(g)
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		var l answer
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return h, fmt.Errorf("read the explanations: %w", err)
		}
		if err := take(&h, l); err != nil {
			return h, fmt.Errorf("read the explanations: %w", err)
		}
	}
	return h, scan.Err()
}

// take adds a line to the record.
func take(h *judge.Record, l answer) error {
	switch {
	case l.Agents != nil:
		h.Agents = l.Agents
	case l.World != nil:
		h.World = append(h.World, *l.World)
	case l.Explanation != nil:
		e := *l.Explanation
		var errs []error
		if l.Machine != nil {
			e.Machine = &baremetalv1.Machine{}
			errs = append(errs, protojson.Unmarshal(l.Machine, e.Machine))
		}
		if l.Answer != nil {
			e.Answer = &baremetalv1.ExplainMachineResponse{}
			errs = append(errs, protojson.Unmarshal(l.Answer, e.Answer))
		}
		if l.Shared != nil {
			e.Shared = &baremetalv1.SharedCause{}
			errs = append(errs, protojson.Unmarshal(l.Shared, e.Shared))
		}
		h.Explanations = append(h.Explanations, e)
		return errors.Join(errs...)
	}
	return nil
}
