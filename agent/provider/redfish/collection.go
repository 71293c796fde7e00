package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Bounds of one collection: BMCs are slow, and firmware has linked its pages in circles.
const (
	maxPages   = 64
	maxMembers = 4096
)

// survey reads many documents for one question. Those that cannot be read are named in missing, and cost no others.
type survey struct {
	c       *Client
	missing []string
}

// errEnough ends the walk of a collection early.
var errEnough = errors.New("enough was read")

// incomplete returns the error that names the missing parts, nil for none.
func (s *survey) incomplete() error {
	if len(s.missing) == 0 {
		return nil
	}
	return &provider.Incomplete{Missing: s.missing}
}

// miss notes that a document could not be read. It returns the error where that concerns the whole service.
func (s *survey) miss(at path, err error) error {
	err = classify(s.c.rt.ctx, err)
	if err == nil || !s.c.alone(err) {
		return err
	}
	s.missing = append(s.missing, tail(at)+": "+strings.TrimSpace(err.Error()))
	return nil
}

// tail returns the end of a path, which distinguishes documents in a sentence.
func tail(p path) string {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(string(p), "/redfish/v1/"), "/"), "/")
	const most = 4
	return strings.Join(parts[max(0, len(parts)-most):], "/")
}

// alone reports whether an error concerns one document: the service answers, and not with this one. It does not where
// a session has ended, where the service asks for a pause, or where it leaves two requests in a row unanswered.
func (c *Client) alone(err error) bool {
	switch code := statusOf(err); {
	case c.rt.ctx.Err() != nil, errors.Is(err, provider.ErrCertificate):
		return false
	case errors.Is(err, provider.ErrUnauthorized):
		// The same log-in has just read other documents, and was renewed where it can be.
		return (c.basic || c.renewed) && c.proven > 0
	case errors.Is(err, provider.ErrCredentials):
		return false
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return c.rt.after == 0
	case errors.Is(err, provider.ErrSilent):
		return c.quiet < 2
	}
	return errors.Is(err, provider.ErrRefused) || errors.Is(err, provider.ErrProtocol)
}

// maxChassis bounds the chassis and the managers of a system that are read.
const maxChassis = 8

// chassis are those of a system to read, each once: services have listed one twice. Others are missing.
func (s *survey) chassis(sys system) []path { return s.some("chassis", sys.Links.V.Chassis.V) }

// managers are those of a system to read, each once. Others are missing.
func (s *survey) managers(sys system) []path { return s.some("managers", sys.Links.V.ManagedBy.V) }

func (s *survey) some(what string, all []path) []path {
	all = once(all, len(all))
	if more := len(all) - maxChassis; more > 0 {
		s.missing = append(s.missing, fmt.Sprintf("%s: %d of %d were not asked for", what, more, len(all)))
	}
	return all[:min(len(all), maxChassis)]
}

// object reads one document into a struct, and reports whether it could.
func (s *survey) object(at path, into any) (ok bool, err error) {
	if at == "" {
		return false, nil
	}
	b, _, err := s.c.get(at)
	if err == nil {
		err = parseObject(b, into)
	}
	if err != nil {
		return false, s.miss(at, err)
	}
	return true, nil
}

func parseObject(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrProtocol, err)
	}
	return nil
}

// member is one member of a collection: a link, and the document where the collection has it in full.
type member struct {
	at  path
	doc json.RawMessage
}

// full reports whether the document is there already: beside its link it has more than annotations.
func (m member) full() bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(m.doc, &fields) != nil {
		return false
	}
	for name := range fields {
		if !strings.Contains(name, "@") {
			return true
		}
	}
	return false
}

// page is one page of a collection.
type page struct {
	members []member
	next    path
	// elsewhere: the next page is no document of this service.
	elsewhere bool
	// count is the collection's own number of its members, on all pages; listed is how many are on this one.
	count, listed int
}

func (c *Client) page(at path) (page, error) {
	b, _, err := c.get(at)
	if err != nil {
		return page{}, err
	}
	list, err := parseCollection(b)
	if err != nil {
		return page{}, err
	}
	p := page{next: cleanPath(list.Next.V), count: int(list.Count.V), listed: len(list.Members)}
	p.elsewhere = list.Next.V != "" && p.next == ""
	for _, doc := range list.Members {
		m := member{doc: doc}
		_ = json.Unmarshal(doc, &m.at) // anything but a link is empty
		if m.at != "" || m.full() {
			p.members = append(p.members, m)
		}
	}
	return p, nil
}

// members reads a collection to its end, page after page (DSP0266, "Paging"), and each member once. It is the one
// reader of collections. An error is that of the first page; pages after it that cannot be read are missing.
func (s *survey) members(list path) (out []member, err error) {
	if list == "" {
		return nil, nil
	}
	pages, seen := map[path]bool{}, map[path]bool{}
	listed, count := 0, 0
	for at := list; at != ""; {
		pages[at] = true
		p, err := s.c.page(at)
		switch {
		case err != nil && len(pages) > 1 && count > 0 && listed >= count && s.c.alone(classify(s.c.rt.ctx, err)):
			return out, nil // a link to nothing, behind the last member
		case err != nil && len(pages) > 1:
			return out, s.miss(at, err)
		}
		if err != nil {
			return nil, err
		}
		for _, m := range p.members {
			if id := plain(m.at); id == "" || !seen[id] {
				seen[id] = true
				out = append(out, m)
			}
		}
		listed, count = listed+p.listed, max(count, p.count)
		why := s.stop(p, pages, len(out), listed)
		if why != "" {
			s.missing = append(s.missing, tail(list)+": "+why)
			return out[:min(len(out), maxMembers)], nil
		}
		at = p.next
	}
	return out, nil
}

// stop is the reason to read no further page of a collection that has more; empty where there is none. listed is how
// many members the pages have listed, those that are no link and those listed twice among them.
func (s *survey) stop(p page, pages map[path]bool, count, listed int) string {
	switch {
	case p.elsewhere:
		return "the next page is not on this service"
	case p.next == "" && listed < p.count:
		return fmt.Sprintf("it counts %d members, lists %d, and names no next page", p.count, listed)
	case p.next == "":
		return ""
	case pages[p.next]:
		return "its pages are linked in a circle"
	case len(pages) >= maxPages:
		return fmt.Sprintf("it has more than %d pages", maxPages)
	case count >= maxMembers:
		return fmt.Sprintf("it has more than %d members", maxMembers)
	}
	return ""
}

// plain is a path without the slash at its end, with which some services list a member once more.
func plain(p path) path { return path(strings.TrimSuffix(string(p), "/")) }

// each calls read with the members of a collection, at most so many. A member or a collection that cannot be read is
// missing. An error of read is the member's own, except errEnough.
func (s *survey) each(list path, most int, read func(at path, b []byte, etag string) error) error {
	all, err := s.members(list)
	if err != nil {
		return s.miss(list, err)
	}
	if more := len(all) - most; more > 0 {
		s.missing = append(s.missing, fmt.Sprintf("%s: %d of %d members were not asked for", tail(list), more, len(all)))
	}
	for _, m := range all[:min(len(all), most)] {
		b, etag := []byte(m.doc), ""
		if !m.full() {
			b, etag, err = s.c.get(m.at)
		}
		if err == nil {
			err = read(m.at, b, etag)
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			if err = s.miss(m.at, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// links are the paths of members, those that have one.
func links(all []member) []path {
	var out []path
	for _, m := range all {
		if m.at != "" && !slices.Contains(out, m.at) {
			out = append(out, m.at)
		}
	}
	return out
}
