// Package maastest is a MAAS region for tests: its API 2.0 as far as it is used here, with MAAS's statuses and the ways
// between them. It can be slow, fail, hang, cut connections before and after an effect, and lose machines.
package maastest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// Config describes a region.
type Config struct {
	// Delay is how long each piece of work takes; 0 means 20 ms.
	Delay time.Duration
	Clock clock.Clock
	// NotAdmin: the key's user is no administrator.
	NotAdmin bool
	// EraseOnRelease, NoSecureErase and QuickErase are the region's own settings of what a release erases, and how.
	EraseOnRelease, NoSecureErase, QuickErase bool
	// MaxURL is the longest request line, in bytes; 0 means 8 KiB, which is nginx's own. A snap's MAAS has 32 KiB.
	MaxURL int
}

// User is the name of the key's user in MAAS.
const User = "ingot"

// Region is one MAAS region. Its methods are safe for concurrent use.
type Region struct {
	cfg    Config
	server *httptest.Server

	mu       sync.Mutex
	machines []*Machine
	faults   []Fault
	requests []Request
	events   []logged
	nonces   map[string]bool
	next     int
	closed   chan struct{}
	// quicker has the actions of another client before a request is read, released its action on a released machine.
	quicker  map[string]func()
	released func(*Machine)
	// unlawful are the changes of a status that MAAS does not have.
	unlawful []string
}

// Request is one request with a key that the region takes.
type Request struct {
	// Op is "GET machines", "POST deploy", "DELETE machine", ….
	Op, SystemID string
	Form         url.Values
	// Acted is set when it had its effect.
	Acted bool
	// Status of the answer; 0 where the region gave none of its own.
	Status int
	// TakenBack is set when its change was undone at once, as nothing could switch the machine.
	TakenBack bool
	// Found is the machine as the request found it.
	Found Machine
}

// Kind of a fault.
type Kind string

// The faults. Before ones leave no effect; After ones answer badly once the effect is there.
const (
	Busy        Kind = "busy"         // 503 with Retry-After, no effect
	BusyAfter   Kind = "busy-after"   // 503, after the effect: what runs once the request is committed has failed
	Revert      Kind = "revert"       // the effect, and then nothing can switch the machine: see powerless
	BadGateway  Kind = "bad-gateway"  // 502 of a proxy, no effect
	BadAfter    Kind = "bad-after"    // 502 of a proxy, after the effect
	Restart     Kind = "restart"      // the region ends after the effect; a proxy answers 502 until it is back
	Conflict    Kind = "conflict"     // 409 with Retry-After, no effect: a transaction was rolled back ten times
	ErrorBefore Kind = "error-before" // 500, no effect
	ErrorAfter  Kind = "error-after"  // 500, after the effect
	CutBefore   Kind = "cut-before"   // the connection ends, no effect
	CutAfter    Kind = "cut-after"    // the connection ends, after the effect
	HangBefore  Kind = "hang-before"  // no answer, no effect
	HangAfter   Kind = "hang-after"   // no answer, after the effect
	Nonsense    Kind = "nonsense"     // 200 with a page of HTML, no effect
	Refuse      Kind = "refuse"       // 400 with a reason, no effect
	Vanish      Kind = "vanish"       // the machine is deleted before the request is looked at
)

// Fault happens to the next Times requests of an Op, after Skip of them; 0 means one, -1 all. Op "*" is any. With After
// it waits until another fault has happened to that op.
type Fault struct {
	Op    string
	Kind  Kind
	Times int
	Skip  int
	After string
}

// The parts of the key that a region takes.
const (
	Consumer = "consumer0123456789"
	Token    = "token0123456789"
	Secret   = "secret0123456789"
)

// APIKey is what a region takes.
const APIKey = Consumer + ":" + Token + ":" + Secret

// New starts a region on loopback.
func New(cfg Config) *Region {
	if cfg.Delay == 0 {
		cfg.Delay = 20 * time.Millisecond
	}
	if cfg.MaxURL == 0 {
		cfg.MaxURL = 8 << 10
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	r := &Region{cfg: cfg, nonces: map[string]bool{}, quicker: map[string]func(){}, closed: make(chan struct{})}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// Endpoint is its URL, as configurations have it.
func (r *Region) Endpoint() string { return r.server.URL + "/MAAS" }

// Close ends it, hanging requests too.
func (r *Region) Close() {
	close(r.closed)
	r.server.CloseClientConnections()
	r.server.Close()
}

// Fail arms faults.
func (r *Region) Fail(faults ...Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		r.faults = append(r.faults, f)
	}
}

// Mend disarms all faults.
func (r *Region) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// Requests returns those of an op, in order; empty means all.
func (r *Region) Requests(op string) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Request
	for _, q := range r.requests {
		if op == "" || q.Op == op {
			out = append(out, q)
		}
	}
	return out
}

// Acted counts the requests of an op that had their effect.
func (r *Region) Acted(op string) (n int) {
	for _, q := range r.Requests(op) {
		if q.Acted {
			n++
		}
	}
	return n
}

func (r *Region) strikes(op string) Kind {
	for i := range r.faults {
		f := &r.faults[i]
		if f.Op != op && f.Op != "*" || f.Times == 0 || f.After != "" {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		kind := f.Kind
		for j := range r.faults {
			if r.faults[j].After == op {
				r.faults[j].After = ""
			}
		}
		return kind
	}
	return ""
}

// answer is a handler's answer.
type answer struct {
	status int
	body   any
	// acted: something has changed.
	acted bool
}

func (r *Region) serve(w http.ResponseWriter, q *http.Request) {
	if why := r.unauthorized(q.Header.Get("Authorization")); why != "" {
		http.Error(w, "Authorization Error: "+why, http.StatusUnauthorized)
		return
	}
	if len(q.RequestURI) > r.cfg.MaxURL { // nginx, before MAAS sees it
		http.Error(w, "<html>414 Request-URI Too Large</html>", http.StatusRequestURITooLong)
		return
	}
	if err := q.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := parse(q)
	r.otherClient(c.op)
	r.mu.Lock()
	kind := r.strikes(c.op)
	var a answer
	if kind == Vanish {
		r.drop(c.systemID)
	}
	found := r.found(c)
	if !slices.Contains([]Kind{Busy, Conflict, ErrorBefore, CutBefore, HangBefore, Nonsense, Refuse, BadGateway}, kind) {
		a = r.handle(c)
	}
	back := kind == Revert && a.acted
	switch {
	case back:
		a = r.powerless(c, found)
	case kind == Restart:
		r.faults = append(r.faults, Fault{Op: "*", Kind: BadGateway, Times: restarting})
	}
	r.requests = append(r.requests, Request{
		Op: c.op, SystemID: c.systemID, Form: q.Form, Acted: a.acted, Status: a.status, TakenBack: back, Found: found,
	})
	r.mu.Unlock()
	r.reply(w, q, kind, a)
}

// restarting is how many requests a proxy answers while the region starts again.
const restarting = 5

// found is the machine that a request is about, as it is now.
func (r *Region) found(c query) Machine {
	id := c.systemID
	if c.op == "POST allocate" {
		id = c.form.Get("system_id")
	}
	m := r.find(id)
	if m == nil {
		return Machine{}
	}
	out := *m
	out.Annotations = maps.Clone(m.Annotations)
	return out
}

// Unlawful lists the changes of a status that MAAS does not have, and that were made here: there are none in a true
// copy.
func (r *Region) Unlawful() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.unlawful)
}

// otherClient runs the test's action of another client before an op.
func (r *Region) otherClient(op string) {
	r.mu.Lock()
	act := r.quicker[op]
	delete(r.quicker, op)
	r.mu.Unlock()
	if act != nil {
		act()
	}
}

func (r *Region) reply(w http.ResponseWriter, q *http.Request, kind Kind, a answer) {
	switch kind {
	// middleware.py, RPCErrorsMiddleware; utils/views.py fires what follows the commit before it answers
	case Busy, BusyAfter:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Unable to connect to any rack controller", http.StatusServiceUnavailable)
	case Conflict: // utils/views.py, WebApplicationHandler.get_response, and templates/409.html
		w.Header().Set("Retry-After", "5")
		http.Error(w, "<html>Conflict error. Try your request again, as it will most likely succeed.</html>",
			http.StatusConflict)
	case ErrorBefore, ErrorAfter:
		http.Error(w, "Internal server error.", http.StatusInternalServerError)
	case Refuse:
		http.Error(w, `{"__all__": ["It is not to be."]}`, http.StatusBadRequest)
	case BadGateway, BadAfter:
		http.Error(w, "<html><h1>502 Bad Gateway</h1></html>", http.StatusBadGateway)
	case CutBefore, CutAfter, Restart:
		panic(http.ErrAbortHandler)
	case HangBefore, HangAfter:
		select {
		case <-q.Context().Done():
		case <-r.closed:
		}
		panic(http.ErrAbortHandler)
	case Nonsense:
		_, _ = fmt.Fprint(w, "<html>please log in</html>") // the client may be gone
	default:
		write(w, a)
	}
}

// unauthorized checks OAuth 1.0 PLAINTEXT as MAAS does: the key, the form, and that no nonce comes twice.
func (r *Region) unauthorized(header string) string {
	fields := map[string]string{}
	rest, ok := strings.CutPrefix(header, "OAuth ")
	for _, part := range strings.Split(rest, ",") {
		key, quoted, _ := strings.Cut(strings.TrimSpace(part), "=")
		value, err := url.QueryUnescape(strings.Trim(quoted, `"`))
		if err != nil {
			return "malformed " + key
		}
		fields[key] = value
	}
	at, err := strconv.ParseInt(fields["oauth_timestamp"], 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	age := r.cfg.Clock.Now().Sub(time.Unix(at, 0))
	switch {
	case !ok || err != nil || fields["oauth_version"] != "1.0":
		return "no OAuth 1.0 header"
	case fields["oauth_signature_method"] != "PLAINTEXT" || fields["oauth_signature"] != "&"+Secret:
		return "Invalid signature"
	case fields["oauth_consumer_key"] != Consumer || fields["oauth_token"] != Token:
		return "Invalid API key"
	case age > 5*time.Minute || age < -5*time.Minute:
		return "Expired timestamp"
	case fields["oauth_nonce"] == "" || r.nonces[fields["oauth_nonce"]]:
		return "Nonce already used"
	}
	r.nonces[fields["oauth_nonce"]] = true
	return ""
}
