package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const (
	systemsPath = rootPath + "/Systems"
	managerPath = rootPath + "/Managers/1"
	chassisPath = rootPath + "/Chassis/1"
	resetPart   = "/Actions/ComputerSystem.Reset"
	logPath     = managerPath + "/LogServices/SEL"
	powerPath   = chassisPath + "/Power"
	// The machine's one network card (DSP2046, NetworkAdapter and NetworkDeviceFunction).
	adaptersPath  = chassisPath + "/NetworkAdapters"
	functionsPath = adaptersPath + "/1/NetworkDeviceFunctions"
)

type object = map[string]any

// routes are what needs a log-in.
func (r *Redfish) routes(mux *http.ServeMux) {
	get := func(path string, doc func() object) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, req *http.Request) { r.answer(w, req, doc()) })
	}
	members := func(path, kind, name string, list func() []string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, req *http.Request) {
			r.answer(w, req, r.cfg.Shape.page(collection(path, kind, name, r.cfg.Shape.haunted(path, list())), req))
		})
	}
	shape := r.cfg.Shape
	systemPath := shape.system()
	one := func(path string) func() []string { return func() []string { return []string{path} } }
	members(systemsPath, "ComputerSystem", "Computer System Collection", shape.systems)
	members(rootPath+"/Managers", "Manager", "Manager Collection", one(managerPath))
	members(rootPath+"/Chassis", "Chassis", "Chassis Collection", one(chassisPath))
	members(systemPath+"/EthernetInterfaces", "EthernetInterface", "Ethernet Interface Collection", r.nicPaths)
	members(adaptersPath, "NetworkAdapter", "Network Adapter Collection", one(adaptersPath+"/1"))
	members(functionsPath, "NetworkDeviceFunction", "Network Device Function Collection", r.functionPaths)
	get(adaptersPath+"/1", func() object {
		return entity(adaptersPath+"/1", "NetworkAdapter.v1_9_0.NetworkAdapter", "1",
			object{"NetworkDeviceFunctions": link(functionsPath)})
	})
	mux.HandleFunc("GET "+functionsPath+"/{id}", r.getFunction)
	get(powerPath, r.power)
	modules := systemPath + "/Memory"
	members(
		modules,
		"Memory",
		"Memory Module Collection",
		func() []string { return []string{modules + "/1", modules + "/2"} },
	)
	get(modules+"/1", func() object { return r.module(modules+"/1", "A1", false) })
	get(modules+"/2", func() object { return r.module(modules+"/2", "A2", r.desk.now().BadModule) })
	members(managerPath+"/LogServices", "LogService", "Log Service Collection", one(logPath))
	members(logPath+"/Entries", "LogEntry", "Log Entry Collection", func() []string { return nil })
	members(sessionsPath, "Session", "Session Collection", r.sessionPaths)
	members(rootPath+"/EventService/Subscriptions", "EventDestination", "Subscription Collection",
		func() []string { return nil })
	get(managerPath, r.manager)
	r.accountRoutes(mux)
	r.mediaRoutes(mux)
	get(logPath, func() object {
		return entity(logPath, "LogService.v1_3_0.LogService", "SEL", object{"Entries": link(logPath + "/Entries")})
	})
	get(rootPath+"/SessionService", func() object {
		return entity(rootPath+"/SessionService", "SessionService.v1_1_8.SessionService", "SessionService",
			object{"ServiceEnabled": true, "SessionTimeout": 1800, "Sessions": link(sessionsPath)})
	})
	get(rootPath+"/EventService", func() object {
		return entity(rootPath+"/EventService", "EventService.v1_8_0.EventService", "EventService",
			object{"ServiceEnabled": false, "Subscriptions": link(rootPath + "/EventService/Subscriptions")})
	})
	mux.HandleFunc("GET "+systemPath, r.getSystem)
	mux.HandleFunc("PATCH "+systemPath, r.patchSystem)
	mux.HandleFunc("POST "+systemPath+resetPart, r.postReset)
	if shape.Settings != "" {
		get(systemPath+"/"+shape.Settings, r.settings)
		mux.HandleFunc("PATCH "+systemPath+"/"+shape.Settings, r.patchSettings)
	}
	if shape.Baseboard != "" {
		get(systemsPath+"/"+shape.Baseboard, r.baseboard)
	}
	mux.HandleFunc("GET "+chassisPath, r.getChassis)
	mux.HandleFunc("GET "+systemPath+"/EthernetInterfaces/{id}", r.getNIC)
	mux.HandleFunc("GET "+sessionsPath+"/{id}", r.getSession)
	mux.HandleFunc("DELETE "+sessionsPath+"/{id}", r.deleteSession)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such resource, or not with this method.")
	})
}

// answer sends a document with its ETag, or answers that the client has it (RFC 9110, 13.1.2).
func (r *Redfish) answer(w http.ResponseWriter, req *http.Request, doc object) {
	tag := etag(doc)
	w.Header().Set("ETag", tag)
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeJSON(w, http.StatusOK, doc)
}

func etag(doc object) string {
	text, err := json.Marshal(doc) // keys are sorted
	if err != nil {
		panic(fmt.Sprintf("a document of our own: %v", err))
	}
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

func link(path string) object { return object{"@odata.id": path} }

func entity(path, kind, id string, more object) object {
	doc := object{"@odata.id": path, "@odata.type": "#" + kind, "Id": id, "Name": id}
	for k, v := range more {
		doc[k] = v
	}
	return doc
}

func collection(path, kind, name string, paths []string) object {
	members := []object{}
	for _, p := range paths {
		members = append(members, link(p))
	}
	return object{
		"@odata.id": path, "@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": name,
		"Members": members, "Members@odata.count": len(members),
	}
}

// haunted lists the member that is gone first. A list that is empty stays so.
func (s Shape) haunted(path string, members []string) []string {
	if s.Ghost == "" || len(members) == 0 {
		return members
	}
	return append([]string{path + "/" + s.Ghost}, members...)
}

// page is the page of a collection that a request asks for with $skip.
func (s Shape) page(doc object, req *http.Request) object {
	all, _ := doc["Members"].([]object)
	skip, _ := strconv.Atoi(req.URL.Query().Get("$skip")) // none is the first page
	if s.Page == 0 || skip < 0 || skip > len(all) {
		return doc
	}
	end := min(skip+s.Page, len(all))
	doc["Members"] = all[skip:end]
	if end < len(all) {
		doc["Members@odata.nextLink"] = fmt.Sprintf("%s?$skip=%d", req.URL.Path, end)
	}
	return doc
}

func (r *Redfish) root() object {
	doc := r.plainRoot()
	if r.cfg.Shape.Accounts.None {
		delete(doc, "AccountService")
	}
	return doc
}

func (r *Redfish) plainRoot() object {
	return entity(rootPath+"/", "ServiceRoot.v1_15_0.ServiceRoot", "RootService", object{
		"Name":           "Root Service",
		"RedfishVersion": "1.15.0",
		"UUID":           r.cfg.Chassis.About().UUID,
		"Vendor":         r.cfg.Chassis.About().vendor(),
		"Product":        "Laboratory BMC",
		"Systems":        link(rootPath + "/Systems"),
		"Chassis":        link(rootPath + "/Chassis"),
		"Managers":       link(rootPath + "/Managers"),
		"SessionService": link(rootPath + "/SessionService"),
		"AccountService": link(accountServicePath),
		"EventService":   link(rootPath + "/EventService"),
		"Links":          object{"Sessions": link(sessionsPath)},
		"ProtocolFeaturesSupported": object{
			"ExpandQuery":     object{"ExpandAll": false, "Levels": false, "Links": false, "NoLinks": false},
			"OnlyMemberQuery": false, "SelectQuery": false, "FilterQuery": false, "ExcerptQuery": false,
		},
	})
}

func (r *Redfish) manager() object {
	doc := entity(managerPath, "Manager.v1_15_0.Manager", "1", object{
		"ManagerType": "BMC", "FirmwareVersion": "1.0", "Status": healthy(), "UUID": r.cfg.Chassis.About().UUID,
		"LogServices":   link(managerPath + "/LogServices"),
		"SerialConsole": object{"ServiceEnabled": false, "MaxConcurrentSessions": 0, "ConnectTypesSupported": []string{}},
		"Links": object{"ManagerForServers": []object{link(r.cfg.Shape.system())},
			"ManagerForChassis": []object{link(chassisPath)}},
	})
	if r.hasMedia() && !r.cfg.Shape.Media.OfSystem {
		doc["VirtualMedia"] = link(r.mediaPath())
	}
	return doc
}

// critical is the status of a failed part.
func critical(state string) object { return object{"State": state, "Health": "Critical"} }

// power has two supplies (DSP0268, Power).
func (r *Redfish) power() object {
	var all []object
	for i, status := range []object{healthy(), healthy()} {
		if i == 1 && r.desk.now().NoInput {
			status = critical("UnavailableOffline")
		}
		id := fmt.Sprint(i)
		all = append(all, object{"@odata.id": powerPath + "#/PowerSupplies/" + id, "MemberId": id,
			"Name": fmt.Sprintf("PSU%d", i+1), "Status": status})
	}
	return entity(powerPath, "Power.v1_7_0.Power", "Power", object{"PowerSupplies": all})
}

func (r *Redfish) module(path, locator string, bad bool) object {
	status := healthy()
	if bad {
		status = critical("Enabled")
	}
	return entity(path, "Memory.v1_17_0.Memory", path[strings.LastIndex(path, "/")+1:],
		object{"DeviceLocator": locator, "Status": status})
}

func healthy() object { return object{"State": "Enabled", "Health": "OK"} }

func (r *Redfish) getChassis(w http.ResponseWriter, req *http.Request) {
	power, err := r.cfg.Chassis.PowerState(req.Context())
	if err != nil {
		chassisFailed(w, err)
		return
	}
	about := r.cfg.Chassis.About()
	r.answer(w, req, entity(chassisPath, "Chassis.v1_21_0.Chassis", "1", object{
		"ChassisType": "RackMount", "Manufacturer": about.vendor(), "Model": about.model(), "SerialNumber": about.Serial,
		"NetworkAdapters": link(adaptersPath), "Power": link(powerPath),
		"PowerState": powerWords[power], "IndicatorLED": r.led.get(), "Status": healthy(),
		"Links": object{"ComputerSystems": []object{link(r.cfg.Shape.system())}, "ManagedBy": []object{link(managerPath)}},
	}))
}

func (r *Redfish) nicPaths() []string {
	var out []string
	for i := range r.cfg.Chassis.About().MACs {
		out = append(out, fmt.Sprintf("%s/EthernetInterfaces/%d", r.cfg.Shape.system(), i+1))
	}
	return out
}

func (r *Redfish) functionPaths() []string {
	var out []string
	for i := range r.cfg.Chassis.About().MACs {
		out = append(out, fmt.Sprintf("%s/%d", functionsPath, i+1))
	}
	return out
}

// getFunction answers with the function of one port. Its addresses are a level deeper than an interface's.
func (r *Redfish) getFunction(w http.ResponseWriter, req *http.Request) {
	for i, mac := range r.cfg.Chassis.About().MACs {
		if id := fmt.Sprint(i + 1); id == req.PathValue("id") {
			r.answer(w, req, entity(req.URL.Path, "NetworkDeviceFunction.v1_9_0.NetworkDeviceFunction", id, object{
				"NetDevFuncType": "Ethernet", "Ethernet": object{"MACAddress": mac, "PermanentMACAddress": mac},
			}))
			return
		}
	}
	refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such function.")
}

func (r *Redfish) getNIC(w http.ResponseWriter, req *http.Request) {
	for i, mac := range r.cfg.Chassis.About().MACs {
		if id := fmt.Sprint(i + 1); id == req.PathValue("id") {
			r.answer(w, req, entity(req.URL.Path, "EthernetInterface.v1_9_0.EthernetInterface", id, object{
				"MACAddress": mac, "PermanentMACAddress": mac, "Status": healthy(),
			}))
			return
		}
	}
	refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such interface.")
}

func (r *Redfish) sessionPaths() []string {
	var out []string
	for _, id := range r.desk.sessionIDs() {
		out = append(out, sessionsPath+"/"+id)
	}
	return out
}

func (r *Redfish) getSession(w http.ResponseWriter, req *http.Request) {
	r.answer(w, req, r.session(req.PathValue("id")))
}

func (r *Redfish) deleteSession(w http.ResponseWriter, req *http.Request) {
	if !r.desk.end(req.PathValue("id")) {
		refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such session.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func chassisFailed(w http.ResponseWriter, err error) {
	refuse(w, http.StatusInternalServerError, "InternalError", "The machine: "+err.Error())
}

// ledState is the identify light.
type ledState struct {
	mu  sync.Mutex
	lit bool
}

func (l *ledState) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lit {
		return "Lit"
	}
	return "Off"
}

func (l *ledState) set(lit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lit = lit
}
