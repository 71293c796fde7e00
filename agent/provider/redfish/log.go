package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	pathpkg "path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/when"
)

type logEntry struct {
	ID        lenient[string] `json:"Id"`
	Created   lenient[string]
	Timestamp lenient[string] `json:"EventTimestamp"`
	Severity  lenient[string]
	Message   lenient[string]
	MessageID lenient[string] `json:"MessageId"`
	// EntryCode and Name are what an entry is without a message, which the schema does not require.
	EntryCode, Name lenient[string]
}

// parseEntry returns the entry, if b is one and not only a link to it.
func parseEntry(b []byte) (provider.Event, bool) {
	var e logEntry
	if json.Unmarshal(b, &e) != nil {
		return provider.Event{}, false
	}
	at := when.Stamp(e.Timestamp.V)
	if at.IsZero() {
		at = when.Stamp(e.Created.V)
	}
	message := cmp.Or(strings.TrimSpace(e.Message.V), e.MessageID.V, e.EntryCode.V, e.Name.V)
	return provider.Event{ID: e.ID.V, At: at, Severity: strings.ToLower(e.Severity.V), Message: message}, message != ""
}

// EventLog returns the newest entries of the system event log, newest first, at most limit. Where entries or pages
// could not be read it returns the others, and an error that names the missing ones.
func (c *Client) EventLog(ctx context.Context, limit int) (out []provider.Event, err error) {
	err = c.call(ctx, func(context.Context) error {
		sv := &survey{c: c}
		entries, err := sv.findLog()
		if err == nil {
			out, err = sv.readLog(entries, limit)
		}
		if err != nil {
			return err
		}
		return sv.incomplete()
	})
	return out, err
}

// findLog searches the system, its managers and its chassis, in this order. It returns the first log that is named like
// an event log, else the first.
func (s *survey) findLog() (path, error) {
	sys, _, err := s.c.readSystem()
	if err != nil {
		return "", err
	}
	places := []path{sys.LogServices}
	for _, p := range slices.Concat(s.managers(sys), s.chassis(sys)) {
		var holder struct{ LogServices path }
		if _, err := s.object(p, &holder); err != nil {
			return "", err
		}
		places = append(places, holder.LogServices)
	}
	var all []path
	for _, place := range once(places, len(places)) {
		found, err := s.members(place)
		if err = s.miss(place, err); err != nil {
			return "", err
		}
		all = append(all, links(found)...)
	}
	for _, service := range bestLogs(all) {
		var log struct{ Entries path }
		if _, err := s.object(service, &log); err != nil {
			return "", err
		}
		if log.Entries != "" {
			if eventLog(service) {
				s.missing = nil // what else could not be read would not have been looked for
			}
			return log.Entries, nil
		}
	}
	if err := s.incomplete(); err != nil {
		return "", err
	}
	return "", unsupported("the BMC has no event log")
}

// bestLogs are the log services to read, those that are named like an event log first. An XCC's SEL has no entries, and
// another one of its logs has them.
func bestLogs(services []path) []path {
	rank := func(p path) int {
		if eventLog(p) {
			return 0
		}
		return 1
	}
	out := slices.Clone(services)
	slices.SortStableFunc(out, func(a, b path) int { return cmp.Compare(rank(a), rank(b)) })
	return out[:min(len(out), maxLogs)]
}

// eventLog reports whether a log is named like a system event log.
func eventLog(p path) bool {
	name := strings.ToLower(pathpkg.Base(string(p)))
	return name == "sel" || strings.Contains(name, "event")
}

// readLog returns the newest entries. A log of many pages may begin with either end: its last page is asked for where
// its links tell how (DSP0266, "$skip"), else all pages are read.
func (s *survey) readLog(list path, limit int) ([]provider.Event, error) {
	first, err := s.c.page(list)
	if err != nil {
		return nil, err
	}
	all := first.members
	if (first.next != "" || first.elsewhere) && !first.newest(limit) {
		if all, err = s.otherPages(list, first, limit); err != nil {
			return nil, err
		}
	}
	events, err := s.entries(all, limit)
	if err != nil {
		return nil, err
	}
	events = newestFirst(events)
	return events[:min(len(events), limit)], nil
}

// newest reports whether the page has the newest entries of its log: enough of them, in full, the newest first.
func (p page) newest(limit int) bool {
	var all []provider.Event
	for _, m := range p.members {
		if e, ok := parseEntry(m.doc); ok && !e.At.IsZero() {
			all = append(all, e)
		}
	}
	return len(all) == len(p.members) && len(all) >= limit && descending(all)
}

// otherPages returns members of both ends of the log. Where the end cannot be asked for, it returns all of them.
func (s *survey) otherPages(list path, first page, limit int) ([]member, error) {
	if at := lastPage(first, limit); at != "" {
		if p, err := s.c.page(at); err == nil && len(p.members) > 0 && p.next == "" && !p.elsewhere &&
			plain(p.members[0].at) != plain(first.members[0].at) {
			return append(first.members, p.members...), nil
		}
	}
	return s.members(list)
}

// lastPage returns the link to the last entries of a log whose pages are linked by the number of entries to skip. It is
// empty for other links, and where the service does not count its entries.
func lastPage(first page, limit int) path {
	u, err := url.Parse(string(first.next))
	if err != nil || len(first.members) == 0 || first.count <= len(first.members)+limit {
		return ""
	}
	const skip = "$skip"
	query := u.Query()
	if n, err := strconv.Atoi(query.Get(skip)); err != nil || n != len(first.members) {
		return ""
	}
	from := first.count - max(limit, 1)
	return cleanPath(u.Path + "?" + strings.Replace(strings.ReplaceAll(u.RawQuery, "%24", "$"),
		skip+"="+query.Get(skip), skip+"="+strconv.Itoa(from), 1))
}

// entries reads entries. Of links alone it reads those of both ends: one of them has the newest.
func (s *survey) entries(all []member, limit int) (out []provider.Event, err error) {
	for i, m := range all {
		doc := []byte(m.doc)
		if !m.full() {
			if i >= limit && i < len(all)-limit {
				continue
			}
			if doc, _, err = s.c.get(m.at); err != nil {
				if err = s.miss(m.at, err); err != nil {
					return nil, err
				}
				continue
			}
		}
		if e, ok := parseEntry(doc); ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// newestFirst orders entries by their times, whatever the order of the service. An entry without a time stays beside
// its neighbours. Without any times the numbers of the entries tell the order, and without those the last is newest.
func newestFirst(all []provider.Event) []provider.Event {
	out := slices.Clone(all)
	if !descending(out) {
		slices.Reverse(out)
	}
	at := make(map[int]time.Time, len(out))
	order := make([]int, len(out))
	var last time.Time
	for i := len(out) - 1; i >= 0; i-- { // from the oldest on
		if !out[i].At.IsZero() {
			last = out[i].At
		}
		at[i], order[i] = last, i
	}
	slices.SortStableFunc(order, func(a, b int) int { return at[b].Compare(at[a]) })
	sorted := make([]provider.Event, 0, len(out))
	for _, i := range order {
		sorted = append(sorted, out[i])
	}
	return sorted
}

// descending reports whether a log begins with its newest entry: more neighbours are in that order than in the other.
func descending(all []provider.Event) bool {
	times, numbers := 0, 0
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if !a.At.IsZero() && !b.At.IsZero() {
			times += a.At.Compare(b.At)
		}
		n, errA := strconv.ParseUint(a.ID, 10, 63)
		m, errB := strconv.ParseUint(b.ID, 10, 63)
		if errA == nil && errB == nil {
			numbers += cmp.Compare(n, m)
		}
	}
	return cmp.Or(times, numbers) > 0
}
