package timeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// The verbs of audit rows that announce that data is emptied: by an admin, and of old differences of a drift.
const (
	ScrubAudit = "SCRUB_AUDIT"
	ScrubDrift = "SCRUB_DRIFT"
)

// refused is the verb of the rows that count refused calls.
const refused = "REFUSED"

func (s *State) diffAudits(t Tables) []string {
	var out []string
	for _, id := range s.Repeated {
		out = append(out, fmt.Sprintf("audit row %s is in the history twice", id))
	}
	first, scrubs := s.firstAudit(), s.scrubs()
	for target, more := range t.Scrubs {
		scrubs[target] = append(scrubs[target], more...)
	}
	for _, id := range keys(s.Audits, t.Audits) {
		h, inHistory := s.Audits[id]
		row, inTable := t.Audits[id]
		why := ""
		switch {
		case !inHistory && t.Elsewhere[id]:
			// It was written before its target was a machine.
		case !inHistory && (row.Salt != nil || first > 0 && number(id) > first):
			why = "is not in the history"
		case !inHistory:
			// Older than the history: rows have had a salt since it began.
		case !inTable:
			why = "is gone"
		default:
			announced := slices.ContainsFunc(scrubs[h.Target], func(c Scrub) bool { return c.covers(number(id), h.Verb) })
			why = row.differs(h, announced)
		}
		if why != "" {
			out = append(out, fmt.Sprintf("audit row %s %s", id, why))
		}
	}
	return out
}

// Scrub announces that the data of a target's rows is emptied: up to a number, and of one verb, or of all.
type Scrub struct {
	Through int64
	Verb    string
}

func (c Scrub) covers(id int64, verb string) bool {
	return id <= c.Through && (c.Verb == "" || c.Verb == verb)
}

// scrubs returns what the history announces, by target. Rows of before announcements had numbers cover all before them.
func (s *State) scrubs() map[string][]Scrub {
	out := map[string][]Scrub{}
	for id, a := range s.Audits {
		switch {
		case a.ScrubThrough != "":
			out[a.Target] = append(out[a.Target], Scrub{Through: number(a.ScrubThrough), Verb: a.ScrubVerb})
		case a.Verb == ScrubAudit:
			out[a.Target] = append(out[a.Target], Scrub{Through: number(id) - 1})
		}
	}
	return out
}

// firstAudit returns the number of the first audit row in the history, 0 where there is none.
func (s *State) firstAudit() (first int64) {
	for id := range s.Audits {
		if n := number(id); first == 0 || n < first {
			first = n
		}
	}
	return first
}

// ScrubsOf returns what the history announces about the rows of one target.
func (s *State) ScrubsOf(target string) []Scrub { return s.scrubs()[target] }

// Elsewhere returns what another history may explain: the numbers of rows in the tables that this one lacks, and the
// targets of rows whose data is emptied without an announcement here.
func (s *State) Elsewhere(t Tables) (rows, targets []string) {
	scrubs := s.scrubs()
	for _, id := range keys(s.Audits, t.Audits) {
		h, inHistory := s.Audits[id]
		row, inTable := t.Audits[id]
		switch {
		case !inHistory:
			rows = append(rows, id)
		case inTable && row.Salt == nil && !slices.Contains(targets, h.Target) &&
			!slices.ContainsFunc(scrubs[h.Target], func(c Scrub) bool { return c.covers(number(id), h.Verb) }):
			targets = append(targets, h.Target)
		}
	}
	return rows, targets
}

// differs returns in which way a row is not the one that was written.
func (a AuditData) differs(h AuditRow, mayBeEmpty bool) string {
	a.Digest = h.Digest
	if a.AuditRow != h {
		return fmt.Sprintf("is %+v in the table and %+v in the history", a.AuditRow, h)
	}
	if a.Salt == nil {
		if a.Data != "{}" {
			return "has data without salt"
		}
		if !mayBeEmpty {
			return "has been emptied, and no audit row says so"
		}
		return ""
	}
	sum := sha256.Sum256(slices.Concat(a.Salt, []byte(a.Data)))
	if hex.EncodeToString(sum[:]) != h.Digest {
		return "has other data than were written"
	}
	return ""
}
