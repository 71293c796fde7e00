package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	// cookie has a prefix that browsers accept only from this host, over TLS.
	cookie     = "__Host-ingot"
	sealedName = "console session"
	// sessionTime is how long a session lasts: a working shift. After it a person signs on again.
	sessionTime = 12 * time.Hour
	bodyBytes   = 8 << 10
	bodyTime    = 5 * time.Second
)

// session is what a cookie holds, sealed.
type session struct {
	ID      string    `json:"id"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Who has signed on with the provider: the identity, what gets the next token, and when this one ends.
	Who   string    `json:"who,omitempty"`
	Renew string    `json:"renew,omitempty"`
	Ends  time.Time `json:"ends,omitzero"`
}

// shown is a page's data on its session.
type shown struct {
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	ExpiresAt time.Time `json:"expires_at"`
}

// session shows, begins or ends one.
func (c *Console) session(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(Header) == "" {
		refuse(w, http.StatusForbidden, "send the header "+Header)
		return
	}
	if err := c.cfg.Ready(); err != nil && r.Method != http.MethodDelete {
		refuse(w, http.StatusServiceUnavailable, failure.From(err).Message)
		return
	}
	switch r.Method {
	case http.MethodGet:
		c.show(w, r)
	case http.MethodPost:
		c.signOn(w, r)
	case http.MethodDelete:
		c.signOut(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "a session is shown by GET, begun by POST and ended by DELETE")
	}
}

func (c *Console) show(w http.ResponseWriter, r *http.Request) {
	s, ok := c.current(r)
	if !ok {
		refuse(w, http.StatusUnauthorized, "there is no session; sign on")
		return
	}
	s = c.fresh(w, r, s)
	caller, err := c.cfg.Identify(r.Context(), s.Token)
	if err != nil {
		e := failure.From(err)
		if e.Kind == failure.KindUnavailable { // the session may be good
			refuse(w, http.StatusServiceUnavailable, e.Message)
			return
		}
		c.cfg.Refused(r.Context())
		refuse(w, http.StatusUnauthorized, e.Message)
		return
	}
	c.cfg.Known(r.Context())
	answer(w, http.StatusOK, showing(caller, s))
}

// signOn takes a bearer token, or a code that stands for one.
func (c *Console) signOn(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token string `json:"token"`
		Code  string `json:"code"`
	}
	if err := readJSON(w, r, &asked); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	token := strings.TrimSpace(asked.Token)
	if asked.Code != "" {
		var ok bool
		if token, ok = c.codes.use(asked.Code, c.cfg.Clock.Now()); !ok {
			c.cfg.Refused(r.Context())
			refuse(w, http.StatusUnauthorized, "this link was used, or is older than a minute; run ingot console again")
			return
		}
	}
	caller, err := c.cfg.Identify(r.Context(), token)
	if err != nil {
		c.cfg.Refused(r.Context())
		e := failure.From(err)
		code := http.StatusUnauthorized
		if e.Kind == failure.KindDenied {
			code = http.StatusForbidden
		}
		refuse(w, code, e.Message)
		return
	}
	c.cfg.Known(r.Context())
	s := c.newSession(token)
	if !c.keep(w, s) {
		refuse(w, http.StatusBadRequest, "the token is too long for a cookie")
		return
	}
	c.cfg.SignedOn(caller, hostOf(r))
	c.cfg.Logger.Info("console sign-on", "caller", caller.Name, "address", r.RemoteAddr, "by_link", asked.Code != "")
	answer(w, http.StatusOK, showing(caller, s))
}

// showing returns the session as the page shows it, with the highest scope of any of the caller's roles.
func showing(caller access.Caller, s session) shown {
	return shown{Name: caller.Name, Scope: caller.Highest().String(), ExpiresAt: s.Expires}
}

func (c *Console) newSession(token string) session {
	return session{ID: ids.New(ids.Session), Token: token, Expires: c.cfg.Clock.Now().Add(sessionTime)}
}

// keep has the browser keep a session. Where that is too large it is kept without what renews it, or not at all.
func (c *Console) keep(w http.ResponseWriter, s session) bool {
	sealed, _ := json.Marshal(s) // strings and times always serialize
	value := base64.RawURLEncoding.EncodeToString(c.cfg.Sealer.Seal(sealedName, sealed))
	if len(value) > mostCookie {
		if s.Renew == "" {
			return false
		}
		s.Renew = ""
		return c.keep(w, s)
	}
	http.SetCookie(w, newCookie(value, int(s.Expires.Sub(c.cfg.Clock.Now()).Seconds())))
	return true
}

// hostOf is the IP address of a request.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// signOut takes the cookie away, and refuses copies of it on every controller. It keeps the cookie where that cannot be
// stored: the person can try again.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if s, ok := c.open(r); ok {
		if c.cfg.SignOuts != nil {
			if err := c.cfg.SignOuts.SignOut(r.Context(), s.ID, s.Expires); err != nil {
				c.cfg.Logger.Warn("console sign-out not stored", "error", err.Error())
				refuse(w, http.StatusServiceUnavailable, "the sign-out cannot be stored now; try again")
				return
			}
		}
		c.ended.add(s, c.cfg.Clock.Now())
	}
	http.SetCookie(w, newCookie("", -1))
	w.WriteHeader(http.StatusNoContent)
}

func newCookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
}

// open reads the session of a request, whatever has become of its token.
func (c *Console) open(r *http.Request) (s session, ok bool) {
	got, err := r.Cookie(cookie)
	if err != nil {
		return s, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(got.Value)
	if err != nil {
		return s, false
	}
	plain, err := c.cfg.Sealer.Open(sealedName, sealed)
	if err != nil || json.Unmarshal(plain, &s) != nil {
		return s, false
	}
	now := c.cfg.Clock.Now()
	return s, now.Before(s.Expires) && !c.ended.has(s.ID, now)
}

// inForceFor is how long the answer that a session is in force is used again: a sign-out on another controller counts
// here after that time.
const inForceFor = 2 * time.Second

// current returns the session of a request that has not been signed out of, on any controller. Where that cannot be
// read there is none: the cookie stays, and counts again later.
func (c *Console) current(r *http.Request) (session, bool) {
	s, ok := c.open(r)
	now := c.cfg.Clock.Now()
	if !ok || c.cfg.SignOuts == nil || c.ended.inForce(s.ID, now) {
		return s, ok
	}
	out, err := c.cfg.SignOuts.SignedOut(r.Context(), s.ID)
	switch {
	case err != nil:
		c.cfg.Logger.Warn("console session not read", "error", err.Error())
		return session{}, false
	case out:
		c.ended.add(s, now)
		return session{}, false
	}
	c.ended.keep(s.ID, now.Add(inForceFor))
	return s, true
}

// ended has the sessions that are known to have ended, until their cookies would have expired anyway. It has those that
// were in force a moment ago, too.
type ended struct {
	mu    sync.Mutex
	ids   map[string]time.Time
	valid map[string]time.Time
}

// inForce reports whether a session was found in force a moment ago.
func (e *ended) inForce(id string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Before(e.valid[id])
}

// keep notes that a session is in force until a time.
func (e *ended) keep(id string, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.valid == nil || len(e.valid) >= mostEnded {
		e.valid = map[string]time.Time{}
	}
	e.valid[id] = until
}

// mostEnded bounds them: a cookie beyond is still taken away from its own browser.
const mostEnded = 100_000

func (e *ended) add(s session, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids == nil {
		e.ids = map[string]time.Time{}
	}
	for id, expires := range e.ids {
		if !now.Before(expires) {
			delete(e.ids, id)
		}
	}
	delete(e.valid, s.ID)
	if len(e.ids) < mostEnded {
		e.ids[s.ID] = s.Expires
	}
}

func (e *ended) has(id string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	expires, ok := e.ids[id]
	return ok && now.Before(expires)
}

// loginCode returns a code for signing on once to the holder of a bearer token.
func (c *Console) loginCode(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "a code is made by POST")
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	err := error(failure.Unauthenticated(auth.ReasonBearerMissing, "send the header Authorization: Bearer <token>"))
	var caller access.Caller
	if strings.EqualFold(scheme, "bearer") {
		caller, err = c.cfg.Identify(r.Context(), token)
	}
	if err != nil {
		c.cfg.Refused(r.Context())
		refuse(w, http.StatusUnauthorized, failure.From(err).Message)
		return
	}
	c.cfg.Known(r.Context())
	code, expires, err := c.codes.add(asker{caller.Identity(), hostOf(r)}, token, c.cfg.Clock.Now())
	if err != nil {
		refuse(w, http.StatusTooManyRequests, err.Error())
		return
	}
	answer(w, http.StatusOK, struct {
		Code      string    `json:"code"`
		ExpiresAt time.Time `json:"expires_at"`
	}{code, expires})
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errors.New("send the body as Content-Type: application/json")
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // as in begin
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
	if err != nil || json.Unmarshal(raw, into) != nil {
		return errors.New("the body is not the JSON of a sign-on")
	}
	return nil
}

func refuse(w http.ResponseWriter, code int, message string) {
	answer(w, code, struct {
		Message string `json:"message"`
	}{message})
}

func answer(w http.ResponseWriter, code int, body any) {
	raw, _ := json.Marshal(body) // strings and times always serialize
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(raw) // a client that does not read it has gone
}
