package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary returns one line on an entry.
func Summary(kind string, v map[string]string) string {
	switch kind {
	case Condition:
		return withReason(v["type"]+" "+conditionWord(v["status"]), v["reason"], v["message"])
	case Operation:
		return withReason(v["type"]+" "+v["phase"], v["wait_reason"], v["error"])
	case Step:
		return withReason("step "+v["step"]+" "+v["state"], "", cmp.Or(v["message"], proof(v["evidence"])))
	case Command:
		return withReason(fmt.Sprintf("%s (attempt %s of step %s) %s", v["kind"], v["attempt"], v["step"],
			joined(v["state"], v["outcome"])),
			joined(v["reason"], v["settled_by"]), proof(v["evidence"]))
	case Workflow:
		return workflowSummary(v)
	case NodeState:
		return fmt.Sprintf("node state %s → %s by %s", v["from"], v["to"], v["by"])
	case Audit:
		return v["verb"]
	case Restored:
		return "the database went back to an older copy, which ended with the entry before"
	case Recount:
		return "the digest of audit row " + v["audit_id"] + " is stated anew"
	default:
		return values(v)
	}
}

// proof is evidence (a JSON object) in one line. What does not fit there is for `ingot ops get`.
func proof(evidence string) string {
	var fields map[string]string
	if json.Unmarshal([]byte(evidence), &fields) != nil {
		return evidence
	}
	const most = 80
	var out []string
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if len(fields[k]) <= most {
			out = append(out, k+"="+fields[k])
		} else {
			out = append(out, k+"=…")
		}
	}
	return strings.Join(out, ", ")
}

// workflowSummary names the stage where it is still to be done, or has failed.
func workflowSummary(v map[string]string) string {
	what := v["kind"]
	if v["mode"] != "" {
		what += " (" + v["mode"] + ")"
	}
	what += " " + v["state"]
	if v["ended"] == "" {
		what += " at stage " + v["stage"]
	}
	return withReason(what, joined(v["reason"], v["failure_class"]), v["message"])
}

func conditionWord(status string) string {
	switch status {
	case "true":
		return "is true"
	case "false":
		return "is false"
	default:
		return "is gone"
	}
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func withReason(what, reason, detail string) string {
	if reason != "" {
		what += " (" + reason + ")"
	}
	if detail != "" {
		what += ": " + detail
	}
	return what
}

// values are all fields, in order of their names; digests are too long for a line.
func values(v map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(v)) {
		value := v[k]
		switch {
		case k == "spec":
			out = append(out, "spec or labels set")
			continue
		case value == "":
			value = "none"
		}
		out = append(out, k+"="+value)
	}
	return strings.Join(out, ", ")
}
