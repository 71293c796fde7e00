// Package netboxtest is as much of NetBox's REST API as the sync uses, made from NetBox's source: v3.1.11 and v4.6.8.
//
// It keeps what those do and others would not: unknown filters match everything (django-filter), and "next" has
// NetBox's own host name (netbox/api/pagination.py). A page is at most MAX_PAGE_SIZE. Custom fields of a change are
// merged into the existing ones (extras/api/customfields.py). A choice is written as a word and read as value and label
// (netbox/api/fields.py). A wrong token is 403 and not 401 (netbox/api/authentication.py). MAC addresses are objects
// since 4.2: "mac_address" of an interface is then read only and silently dropped from a write
// (dcim/api/serializers_/device_components.py). Roles of devices have changed their name.
package netboxtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MaxPageSize is NetBox's MAX_PAGE_SIZE; the default there is 1000.
const MaxPageSize = 20

// Object is one of NetBox's.
type Object = map[string]any

// model describes a kind of object.
type model struct {
	required []string
	refs     map[string]string // fields that name another object: its model
	choices  map[string][]string
	unique   [][]string
	brief    []string
	defaults Object
	custom   bool // has custom fields
}

// Server is an emulated NetBox.
type Server struct {
	*httptest.Server
	version, token string

	mu     sync.Mutex
	models map[string]model
	rows   map[string]map[int64]Object
	last   int64
	away   int
	writes []string
}

// New starts a server that reports a version, such as 4.6.8.
func New(version, token string) *Server {
	s := &Server{version: version, token: token, rows: map[string]map[int64]Object{}, models: modelsOf(version)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Away has the next requests answered by a proxy that finds no NetBox.
func (s *Server) Away(requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = requests
}

// Writes are the requests that have changed something, in their order.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func (s *Server) new() bool { return strings.HasPrefix(s.version, "4.") }

func modelsOf(version string) map[string]model {
	role, types := "device_role", "content_types"
	refs := map[string]string{"device": "dcim/devices"}
	if strings.HasPrefix(version, "4.") {
		role, types = "role", "object_types"
		refs["primary_mac_address"] = "dcim/mac-addresses"
	}
	named := []string{"name", "slug"}
	return map[string]model{
		"dcim/sites":         {required: named, unique: [][]string{{"name"}, {"slug"}}, brief: named},
		"dcim/manufacturers": {required: named, unique: [][]string{{"name"}, {"slug"}}, brief: named},
		"dcim/device-roles":  {required: named, unique: [][]string{{"name"}, {"slug"}}, brief: named},
		"dcim/racks": {required: []string{"name", "site"}, refs: map[string]string{"site": "dcim/sites"},
			brief: []string{"name"}},
		"dcim/device-types": {required: []string{"manufacturer", "model", "slug"},
			refs: map[string]string{"manufacturer": "dcim/manufacturers"}, brief: []string{"model", "slug"}},
		"dcim/devices": {
			required: []string{"device_type", role, "site"}, custom: true, brief: []string{"name"},
			refs: map[string]string{"device_type": "dcim/device-types", role: "dcim/device-roles", "site": "dcim/sites",
				"rack": "dcim/racks"},
			choices: map[string][]string{"status": {"offline", "active", "planned", "staged", "failed", "inventory",
				"decommissioning"}},
			unique: [][]string{{"site", "name"}, {"asset_tag"}},
			defaults: Object{"name": nil, "serial": "", "asset_tag": nil, "rack": nil, "position": nil, "status": "active",
				"custom_fields": Object{}},
		},
		"dcim/interfaces": {
			required: []string{"device", "name", "type"}, refs: refs, unique: [][]string{{"device", "name"}},
			choices:  map[string][]string{"type": {"virtual", "other", "1000base-t", "10gbase-t", "25gbase-x-sfp28"}},
			brief:    []string{"name"},
			defaults: Object{"mgmt_only": false, "mac_address": nil, "primary_mac_address": nil},
		},
		"dcim/mac-addresses": {required: []string{"mac_address"}, brief: []string{"mac_address"}},
		"extras/custom-fields": {required: []string{types, "type", "name"}, unique: [][]string{{"name"}},
			choices: map[string][]string{"type": {"text", "longtext", "integer", "boolean", "date", "url", "json"}}},
	}
}

// refusal is an answer that is no success.
type refusal struct {
	status int
	body   any
}

func fieldError(field, format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, Object{field: []string{fmt.Sprintf(format, args...)}}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away > 0 {
		s.away--
		http.Error(w, "<html>502 Bad Gateway</html>", http.StatusBadGateway)
		return
	}
	status := http.StatusOK
	body, refused := s.answer(r, &status)
	if refused != nil {
		status, body = refused.status, refused.body
	} else if r.Method != http.MethodGet {
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has gone away needs no answer
}

func (s *Server) answer(r *http.Request, status *int) (any, *refusal) {
	if auth := r.Header.Get("Authorization"); auth == "" {
		return nil, &refusal{http.StatusForbidden, Object{"detail": "Authentication credentials were not provided."}}
	} else if auth != map[bool]string{true: "Bearer ", false: "Token "}[strings.HasPrefix(s.token, "nbt_")]+s.token {
		return nil, &refusal{http.StatusForbidden, Object{"detail": "Invalid token"}}
	}
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
	if path == "status" {
		return Object{"netbox-version": s.version, "plugins": Object{}}, nil
	}
	parts := strings.Split(path, "/")
	name := strings.Join(parts[:min(2, len(parts))], "/")
	m, known := s.models[name]
	if !known || !strings.HasSuffix(r.URL.Path, "/") {
		return nil, &refusal{http.StatusNotFound, Object{"error": "The requested page does not exist"}}
	}
	switch {
	case len(parts) == 2 && r.Method == http.MethodGet:
		return s.list(name, r)
	case len(parts) == 2 && r.Method == http.MethodPost:
		*status = http.StatusCreated
		return s.write(name, m, 0, r)
	}
	id, err := strconv.ParseInt(parts[len(parts)-1], 10, 64)
	if err != nil || s.rows[name][id] == nil {
		return nil, &refusal{http.StatusNotFound, Object{"detail": "Not found."}}
	}
	switch r.Method {
	case http.MethodGet:
		return s.show(name, id), nil
	case http.MethodPatch:
		return s.write(name, m, id, r)
	case http.MethodDelete:
		delete(s.rows[name], id)
		*status = http.StatusNoContent
		return nil, nil
	}
	return nil, &refusal{http.StatusMethodNotAllowed, Object{"detail": fmt.Sprintf("Method %q not allowed.", r.Method)}}
}

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return otherwise
}

func (s *Server) list(name string, r *http.Request) (any, *refusal) {
	q := r.URL.Query()
	var ids []int64
	for _, id := range slices.Sorted(maps.Keys(s.rows[name])) {
		ok, refused := s.matches(name, id, q)
		if refused != nil {
			return nil, refused
		}
		if ok {
			ids = append(ids, id)
		}
	}
	limit, offset := number(q.Get("limit"), 50), number(q.Get("offset"), 0)
	if limit == 0 || limit > MaxPageSize {
		limit = MaxPageSize
	}
	out := Object{"count": len(ids), "next": nil, "previous": nil, "results": []any{}}
	rows := []any{}
	for _, id := range ids[min(offset, len(ids)):min(offset+limit, len(ids))] {
		rows = append(rows, s.show(name, id))
	}
	out["results"] = rows
	if offset+limit < len(ids) {
		q.Set("offset", strconv.Itoa(offset+limit))
		out["next"] = "http://netbox.internal:8001" + r.URL.Path + "?" + q.Encode()
	}
	return out, nil
}

// matches holds a row against the filters that NetBox knows; of several values of one, any will do.
func (s *Server) matches(name string, id int64, q url.Values) (bool, *refusal) {
	row := s.rows[name][id]
	for key, values := range q {
		field := key
		switch {
		case key == "role" && !s.new():
			field = "device_role"
		case key == "device_id":
			field = "device"
		}
		ref := s.models[name].refs[field]
		switch {
		case key == "id" && !slices.Contains(values, fmt.Sprint(id)),
			key == "device_id" && !slices.Contains(values, fmt.Sprint(row["device"])),
			key == "status" && !slices.Contains(values, fmt.Sprint(row["status"])),
			key == "name" && !slices.Contains(values, fmt.Sprint(row["name"])):
			return false, nil
		case (key == "role" || key == "site") && ref != "":
			for _, slug := range values {
				if !s.hasSlug(ref, slug) {
					return false, fieldError(key, "Select a valid choice. %s is not one of the available choices.", slug)
				}
			}
			if slug, _ := s.rows[ref][row[field].(int64)]["slug"].(string); !slices.Contains(values, slug) {
				return false, nil
			}
		}
	}
	return true, nil
}

func (s *Server) hasSlug(name, slug string) bool {
	for _, row := range s.rows[name] {
		if row["slug"] == slug {
			return true
		}
	}
	return false
}

// write makes an object, or changes one.
func (s *Server) write(name string, m model, id int64, r *http.Request) (any, *refusal) {
	var in Object
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, &refusal{http.StatusBadRequest, Object{"detail": "JSON parse error - " + err.Error()}}
	}
	row := maps.Clone(m.defaults)
	if id != 0 {
		row = maps.Clone(s.rows[name][id])
	} else if row == nil {
		row = Object{}
	}
	for key, value := range in {
		if name == "dcim/interfaces" && s.new() && key == "mac_address" {
			continue // read only, and no error
		}
		if refused := s.set(name, m, row, key, value); refused != nil {
			return nil, refused
		}
	}
	for _, key := range m.required {
		if row[key] == nil {
			return nil, fieldError(key, "This field is required.")
		}
	}
	if refused := s.valid(name, m, id, row); refused != nil {
		return nil, refused
	}
	if id == 0 {
		s.last++
		id = s.last
	}
	if s.rows[name] == nil {
		s.rows[name] = map[int64]Object{}
	}
	s.rows[name][id] = row
	return s.show(name, id), nil
}

func (s *Server) set(name string, m model, row Object, key string, value any) *refusal {
	switch ref := m.refs[key]; {
	case key == "custom_fields" && m.custom:
		given, _ := value.(Object)
		all := maps.Clone(row[key].(Object))
		for field, v := range given {
			if !s.hasName("extras/custom-fields", field) {
				return fieldError("__all__", "Unknown field name '%s' in custom field data.", field)
			}
			if _, text := v.(string); v != nil && !text {
				return fieldError("__all__", "Invalid value for custom field '%s': Value must be a string.", field)
			}
			all[field] = v
		}
		row[key] = all
	case ref != "" && value != nil:
		pk, isNumber := value.(float64)
		if !isNumber {
			return fieldError(key, "Related objects must be referenced by numeric ID or by dictionary of attributes.")
		}
		if s.rows[ref][int64(pk)] == nil {
			return fieldError(key, "Related object not found using the provided numeric ID: %d", int64(pk))
		}
		row[key] = int64(pk)
	case m.choices[key] != nil && !slices.Contains(m.choices[key], fmt.Sprint(value)):
		return fieldError(key, "%v is not a valid choice.", value)
	case key == "mac_address" && value != nil:
		row[key] = strings.ToUpper(fmt.Sprint(value)) // as netaddr's mac_unix_expanded_uppercase
	default:
		row[key] = value
	}
	return nil
}

func (s *Server) hasName(name, text string) bool {
	for _, row := range s.rows[name] {
		if row["name"] == text {
			return true
		}
	}
	return false
}

// valid holds what only the whole row shows.
func (s *Server) valid(name string, m model, id int64, row Object) *refusal {
	for _, fields := range m.unique {
		for other, have := range s.rows[name] {
			same := other != id
			for _, f := range fields {
				same = same && row[f] != nil && row[f] == have[f]
			}
			switch {
			case !same:
			case len(fields) == 1:
				return fieldError(fields[0], "%s with this %s already exists.", name, fields[0])
			case s.new():
				return fieldError("__all__", "Constraint “%s_unique_%s” is violated.", strings.ReplaceAll(name, "/", "_"),
					strings.Join(fields, "_"))
			default:
				return fieldError("non_field_errors", "The fields %s must make a unique set.", strings.Join(fields, ", "))
			}
		}
	}
	if mac, ok := row["primary_mac_address"].(int64); ok {
		at := s.rows["dcim/mac-addresses"][mac]
		if at["assigned_object_id"] != float64(id) {
			return fieldError("primary_mac_address", "MAC address %v is assigned to a different interface (%v).",
				at["mac_address"], at["assigned_object_id"])
		}
	}
	return nil
}

// show is an object as NetBox writes it.
func (s *Server) show(name string, id int64) Object {
	m, out := s.models[name], maps.Clone(s.rows[name][id])
	out["id"], out["url"] = id, fmt.Sprintf("http://netbox.internal:8001/api/%s/%d/", name, id)
	for field, ref := range m.refs {
		if pk, ok := out[field].(int64); ok {
			brief := Object{"id": pk}
			for _, f := range s.models[ref].brief {
				brief[f] = s.rows[ref][pk][f]
			}
			out[field] = brief
		}
	}
	for field := range m.choices {
		if v, ok := out[field].(string); ok {
			out[field] = Object{"value": v, "label": strings.ToUpper(v[:1]) + v[1:]}
		}
	}
	if m.custom {
		fields := Object{}
		for _, f := range s.rows["extras/custom-fields"] {
			key := f["name"].(string)
			fields[key] = out["custom_fields"].(Object)[key]
		}
		out["custom_fields"] = fields
	}
	if name == "dcim/interfaces" && s.new() {
		s.showMACs(id, out)
	}
	return out
}

func (s *Server) showMACs(id int64, out Object) {
	all := []any{}
	out["mac_address"] = nil
	for _, pk := range slices.Sorted(maps.Keys(s.rows["dcim/mac-addresses"])) {
		row := s.rows["dcim/mac-addresses"][pk]
		if row["assigned_object_type"] == "dcim.interface" && row["assigned_object_id"] == float64(id) {
			all = append(all, Object{"id": pk, "mac_address": row["mac_address"]})
		}
		if primary, ok := out["primary_mac_address"].(Object); ok && primary["id"] == pk {
			out["mac_address"] = row["mac_address"]
		}
	}
	out["mac_addresses"] = all
}
