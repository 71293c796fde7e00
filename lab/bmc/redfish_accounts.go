package bmc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
)

const (
	accountServicePath = rootPath + "/AccountService"
	accountsPath       = accountServicePath + "/Accounts"
)

// Accounts is how a service keeps accounts and changes their passwords (DMTF, schemas AccountService and
// ManagerAccount).
// The zero value has one account, and takes any password.
type Accounts struct {
	// None: the service has no account service, which DSP0266 allows.
	None bool
	// Slots is a fixed number of accounts, of which the second is the administrator's and the others are unused; 0 is one
	// account alone. Source: github.com/dell/iDRAC-Redfish-Scripting, issues 16 and 129 (Accounts/2 to 16).
	Slots int
	// MatchNeeded: a change without If-Match is answered with 428. Source: github.com/ansible/ansible, issue 56050
	// (Lenovo ThinkSystem); github.com/fwupd/fwupd, issue 6347.
	MatchNeeded bool
	// BodyTag: the entity tag stands in the document and in no header. Source: github.com/DMTF/Redfish-Tacklebox, pull
	// request 54, where a service sends no ETag header.
	BodyTag bool
	// Longest is the length of the longest password; 0 means any. A longer one is refused with Refused, or 400.
	Longest int
	// Refused is the status of a password that the policy does not allow. OpenBMC answers with a bare 500. Source:
	// github.com/openbmc/bmcweb, issue 103.
	Refused int
	// Punctuation: a password without any is refused. The refusal repeats the password, as the message
	// PropertyValueFormatError of the DMTF's Base registry does, whose first argument is the value.
	Punctuation bool
	// Later: the change is answered with 202 and done a little after (DSP0266, "Asynchronous operations").
	Later bool
	// EndsSessions: a change of the password ends the sessions of the account, the one that makes it too. The schema of
	// ManagerAccount leaves that open.
	EndsSessions bool
}

func (a Accounts) allows(password string) bool {
	return (a.Longest == 0 || len(password) <= a.Longest) &&
		(!a.Punctuation ||
			strings.ContainsFunc(password, func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) }))
}

// accountRoutes are those of the account service.
func (r *Redfish) accountRoutes(mux *http.ServeMux) {
	if r.cfg.Shape.Accounts.None {
		return
	}
	mux.HandleFunc("GET "+accountServicePath, func(w http.ResponseWriter, req *http.Request) {
		r.answer(w, req, entity(accountServicePath, "AccountService.v1_13_0.AccountService", "AccountService",
			object{"ServiceEnabled": true, "Accounts": link(accountsPath)}))
	})
	mux.HandleFunc("GET "+accountsPath, func(w http.ResponseWriter, req *http.Request) {
		var paths []string
		for i := range max(r.cfg.Shape.Accounts.Slots, 1) {
			paths = append(paths, fmt.Sprintf("%s/%d", accountsPath, i+1))
		}
		r.answer(w, req, r.cfg.Shape.page(collection(accountsPath, "ManagerAccount", "Accounts Collection",
			r.cfg.Shape.haunted(accountsPath, paths)), req))
	})
	mux.HandleFunc("GET "+accountsPath+"/{id}", r.getAccount)
	mux.HandleFunc("PATCH "+accountsPath+"/{id}", r.patchAccount)
}

// account is the document of an account; ok is false where there is none of that id.
func (r *Redfish) account(id string) (doc object, owned, ok bool) {
	slots := r.cfg.Shape.Accounts.Slots
	for i := range max(slots, 1) {
		if fmt.Sprint(i+1) != id {
			continue
		}
		name := ""
		if owned = slots == 0 || i == 1; owned {
			name = r.cfg.User
		}
		doc = entity(accountsPath+"/"+id, "ManagerAccount.v1_11_0.ManagerAccount", id, object{
			"Name": "User Account", "UserName": name, "Password": nil, "Enabled": owned, "Locked": r.desk.counted().Locked,
			"RoleId": "Administrator",
		})
		if r.cfg.Shape.Accounts.BodyTag {
			doc["@odata.etag"] = etag(doc)
		}
		return doc, owned, true
	}
	return nil, false, false
}

func (r *Redfish) getAccount(w http.ResponseWriter, req *http.Request) {
	doc, _, ok := r.account(req.PathValue("id"))
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such account.")
	case r.cfg.Shape.Accounts.BodyTag:
		writeJSON(w, http.StatusOK, doc)
	default:
		r.answer(w, req, doc)
	}
}

func (r *Redfish) patchAccount(w http.ResponseWriter, req *http.Request) {
	doc, owned, ok := r.account(req.PathValue("id"))
	if !ok {
		refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such account.")
		return
	}
	a, tag := r.cfg.Shape.Accounts, etag(doc)
	if a.BodyTag {
		tag = doc["@odata.etag"].(string)
	}
	switch match := req.Header.Get("If-Match"); {
	case a.MatchNeeded && match == "":
		refuse(w, http.StatusPreconditionRequired, "PreconditionRequired", "The request needs the header If-Match.")
		return
	case match != "" && match != tag && (match != "*" || a.MatchNeeded):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed",
			"The ETag supplied did not match the ETag required to change this resource.")
		return
	}
	var in struct{ Password *string }
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body was malformed JSON.")
		return
	}
	switch {
	case in.Password == nil || !owned:
		refuse(w, http.StatusBadRequest, "PropertyMissing", "The property Password is required.")
	case !a.allows(*in.Password) && a.Refused != 0:
		w.WriteHeader(a.Refused)
	case !a.allows(*in.Password):
		refuse(w, http.StatusBadRequest, "PropertyValueFormatError",
			"The value '"+*in.Password+"' for the property Password is not of a format that the property accepts.")
	default:
		r.changePassword(w, *in.Password)
	}
}

// laterAfter is how long a change takes that is done later.
const laterAfter = time.Second

// changePassword answers as the faults want.
func (r *Redfish) changePassword(w http.ResponseWriter, password string) {
	a, cut := r.cfg.Shape.Accounts, r.desk.cut()
	if cut == CutBefore {
		panic(http.ErrAbortHandler)
	}
	change := func() {
		if !r.desk.lying() {
			r.desk.change(password, a.EndsSessions)
		}
	}
	if a.Later {
		time.AfterFunc(laterAfter, change)
		w.Header().Set("Location", rootPath+"/TaskService/Tasks/1")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	change()
	if cut == CutAfter {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// change changes the password, as its owner would.
func (d *desk) change(password string, endSessions bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.password = password
	d.counts.PasswordChanges++
	if endSessions {
		clear(d.sessions)
	}
}

// cut is where the next change of the password is cut off, once.
func (d *desk) cut() Cut {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.faults.PasswordCut
	d.faults.PasswordCut = CutNever
	return c
}

// Takes reports whether a log-in with the password would succeed. It counts as none.
func (r *Redfish) Takes(password string) bool {
	r.desk.mu.Lock()
	defer r.desk.mu.Unlock()
	return !r.desk.counts.Locked && r.desk.password == password
}

// Password is the account's password now.
func (r *Redfish) Password() string {
	r.desk.mu.Lock()
	defer r.desk.mu.Unlock()
	return r.desk.password
}
