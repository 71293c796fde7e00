package maastest

import (
	"net/url"
	"slices"
	"strconv"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// The levels of events that are used here (src/maascommon/events.py, EVENT_DETAILS_MAP).
const (
	debug  = "DEBUG"
	info   = "INFO"
	warn   = "WARNING"
	failed = "ERROR"
)

// logged is one line of the region's log of a machine, as src/maasserver/api/events.py, event_to_dict, shows it.
type logged struct {
	id                               int
	systemID, kind, level, text, who string
}

// log writes an event. kind is the description of its type.
func (r *Region) log(m *Machine, level, kind, text string) {
	r.events = append(r.events, logged{len(r.events) + 1, m.SystemID, kind, level, text, ""})
}

// asked writes the event of a request: "(user) - comment", as models/node.py, Node._register_request_event, does.
func (r *Region) asked(m *Machine, kind, comment string) {
	text := "(" + User + ")"
	if comment != "" {
		text += " - " + comment
	}
	r.events = append(r.events, logged{len(r.events) + 1, m.SystemID, kind, debug, text, User})
}

// move changes the status, and writes the line that models/signals/events.py, emit_state_transition_event, writes. A
// machine that becomes New or Ready loses its owner (models/signals/nodes.py,
// clear_owner_when_status_changes_to_new_or_ready).
func (r *Region) move(m *Machine, to ms.Status) {
	from, _ := ms.Of(m.Status)
	into, _ := ms.Of(to)
	if m.Status == to {
		return
	}
	if !follows(m.Status, to) {
		r.unlawful = append(r.unlawful, m.SystemID+": "+from.Name+" -> "+into.Name)
	}
	m.Status = to
	text := "From '" + from.Name + "' to '" + into.Name + "'"
	switch to {
	case ms.New, ms.Ready:
		m.Owner = ""
	case ms.Allocated:
		text += " (to " + m.Owner + ")"
	}
	r.log(m, debug, "Node changed status", text)
}

// markFailed is models/node.py, Node.mark_failed: the comment is an event, and the status that of the failure.
func (r *Region) markFailed(m *Machine, to ms.Status, comment string) {
	r.log(m, failed, "Marking node failed", comment)
	r.move(m, to)
}

// statusMessage is models/node.py, Node.status_message: the newest event that is no debugging.
func (r *Region) statusMessage(m *Machine) string {
	for _, e := range slices.Backward(r.events) {
		if e.systemID != m.SystemID || e.level == debug {
			continue
		}
		if e.text == "" {
			return e.kind
		}
		return e.kind + " - " + e.text
	}
	return ""
}

// eventsOf is api/events.py, EventsHandler.query: newest first, 100 unless asked, at most 1,000, without debugging
// unless asked.
func (r *Region) eventsOf(form url.Values) answer {
	limit, err := strconv.Atoi(form.Get("limit"))
	switch {
	case err != nil:
		limit = 100
	case limit > 1000:
		return refuse(400, "Requested number of events %d is greater than limit: 1000", limit)
	}
	out := []any{}
	for _, e := range slices.Backward(r.events) {
		if e.systemID == form.Get("id") && len(out) < limit && (e.level != debug || form.Get("level") == debug) {
			out = append(out, map[string]any{
				"id": e.id, "node": e.systemID, "type": e.kind, "description": e.text, "level": e.level, "username": e.who,
			})
		}
	}
	return answer{status: 200, body: map[string]any{"count": len(out), "events": out, "next_uri": "", "prev_uri": ""}}
}
