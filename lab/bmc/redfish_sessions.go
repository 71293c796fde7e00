package bmc

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	rootPath     = "/redfish/v1"
	sessionsPath = rootPath + "/SessionService/Sessions"
)

// openRoutes are those of DSP0266, 13.3.2: to be had without a log-in.
func (r *Redfish) openRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /redfish", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"v1": rootPath + "/"})
	})
	mux.HandleFunc("GET "+rootPath, func(w http.ResponseWriter, req *http.Request) { r.answer(w, req, r.root()) })
	mux.HandleFunc("GET "+rootPath+"/{$}", func(w http.ResponseWriter, req *http.Request) { r.answer(w, req, r.root()) })
	mux.HandleFunc("GET "+rootPath+"/odata", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"@odata.context": rootPath + "/$metadata", "value": []any{}})
	})
	mux.HandleFunc("POST "+sessionsPath, r.newSession)
}

// noSession is the message of SessionLimitExceeded (DMTF, Base registry).
const noSession = "The session establishment failed due to the number of simultaneous sessions exceeding the limit " +
	"of the implementation."

func (r *Redfish) newSession(w http.ResponseWriter, req *http.Request) {
	var in struct{ UserName, Password string }
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body was malformed JSON.")
		return
	}
	if !r.desk.login(in.UserName, in.Password) {
		if code := r.desk.status(func(f Faults) int { return f.WrongPassword },
			http.StatusUnauthorized); code != http.StatusUnauthorized {
			refuseAs(w, code, "iLO.0.10.ExtendedInfo", "UnauthorizedLoginAttempt")
			return
		}
		unauthorized(w)
		return
	}
	if full := r.cfg.Shape.SessionsFull; full != 0 {
		refuse(w, full, "SessionLimitExceeded", noSession)
		return
	}
	id, token, ok := r.desk.open()
	if !ok {
		refuse(w, r.desk.status(func(f Faults) int { return f.SessionLimit }, http.StatusServiceUnavailable),
			"SessionLimitExceeded", noSession)
		return
	}
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", sessionsPath+"/"+id)
	writeJSON(w, http.StatusCreated, r.session(id))
}

func (d *desk) open() (id, token string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.NoSessions {
		return "", "", false
	}
	d.next++
	d.counts.Sessions++
	id, token = strconv.Itoa(d.next), ids.Secret(24)
	d.sessions[id] = token
	return id, token, true
}

func (d *desk) valid(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.sessions {
		if t == token {
			return true
		}
	}
	return false
}

func (d *desk) end(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.sessions[id]
	delete(d.sessions, id)
	return ok
}

func (d *desk) sessionIDs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for id := range d.sessions {
		out = append(out, id)
	}
	return out
}

// loggedIn lets through who has a session or the password.
func (r *Redfish) loggedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if token := req.Header.Get("X-Auth-Token"); token != "" && r.desk.valid(token) {
			next.ServeHTTP(w, req)
			return
		}
		if user, password, ok := req.BasicAuth(); ok && r.desk.login(user, password) {
			next.ServeHTTP(w, req)
			return
		}
		unauthorized(w)
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
	refuse(w, http.StatusUnauthorized, "NoValidSession", "There is no valid session established with the implementation.")
}

func (r *Redfish) session(id string) map[string]any {
	return map[string]any{
		"@odata.id": sessionsPath + "/" + id, "@odata.type": "#Session.v1_6_0.Session",
		"Id": id, "Name": "User Session", "UserName": r.cfg.User, "Password": nil,
	}
}
