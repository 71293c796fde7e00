package httpboot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		s.relay.ServeHTTP(w, r)
		return
	}
	v := s.view.Load()
	switch to := parseRoute(r.Method, r.URL.Path); to.kind {
	case autoScript:
		s.autoScript(w, r, v)
	case autoEFI:
		s.autoEFI(w, r, v)
	case self:
		s.self(w, r, v)
	case bootFile:
		s.bootFile(w, r, v, to)
	case enrol:
		s.desk.Serve(w, r, to.token)
	case blob:
		s.blob(w, r, v, to.sha256)
	case phoneHome:
		s.phoneHome(w, r, v, to.token)
	case wrongMethod:
		http.Error(w, "this can't be done here", http.StatusMethodNotAllowed)
	default:
		http.Error(w, "there is nothing here", http.StatusNotFound)
	}
}

// asked is what iPXE and firmware say of themselves in a query.
type asked struct {
	mac  segment.MAC
	arch string
}

func parseAsked(r *http.Request) (asked, error) {
	q := r.URL.Query()
	mac, err := segment.ParseMAC(q.Get("mac"))
	return asked{mac: mac, arch: q.Get("arch")}, err
}

// find returns the boot order of a machine; ok is false when it boots from its disk.
func (s *Server) find(v *view, a asked) (t target, ok bool) {
	assigned, known := v.byMAC[a.mac]
	discover := !known && s.cfg.Segment.Discovery == segment.DiscoveryBoot
	files, found := v.installer(a.arch)
	switch {
	case known && assigned.NetBoots() && found && validToken(assigned.Token):
		return target{token: assigned.Token, mode: assigned.Mode, files: files}, true
	case known && assigned.NetBoots():
		s.cfg.Log.Error("a machine is to boot the installer, and there is none for it",
			"machine_id", assigned.MachineID, "operation_id", assigned.OperationID, "arch", knownArch(a.arch))
	case discover && found:
		return target{token: installerenrol.DiscoveryToken, mode: segment.BootRescue, files: files}, true
	}
	return target{}, false
}

// knownArch keeps what strangers say out of logs.
func knownArch(arch string) string {
	switch arch {
	case "i386", "x86_64", "arm32", "arm64":
		return arch
	}
	return ""
}

func (s *Server) autoScript(w http.ResponseWriter, r *http.Request, v *view) {
	a, err := parseAsked(r)
	if err != nil {
		http.Error(w, "mac is not a MAC address", http.StatusBadRequest)
		return
	}
	if a.arch == "" && len(v.Installers) > 1 {
		text(w, r, askScript(s.base, a.mac))
		return
	}
	t, ok := s.find(v, a)
	s.cfg.Log.Info("machine asks what to boot", "mac", a.mac.String(), "remote", r.RemoteAddr, "boots", ok, "mode",
		string(t.mode))
	if !ok {
		text(w, r, diskScript)
		return
	}
	text(w, r, bootScript(s.base, t))
}

func (s *Server) autoEFI(w http.ResponseWriter, r *http.Request, v *view) {
	a, err := parseAsked(r)
	if err != nil {
		http.Error(w, "mac is not a MAC address", http.StatusBadRequest)
		return
	}
	t, ok := s.find(v, a)
	if !ok {
		http.Error(w, "this machine boots from its disk", http.StatusNotFound)
		return
	}
	s.sendUKI(w, r, t)
}

// Self is the answer to GET /boot/self.
type Self struct {
	MAC  string `json:"mac"`
	Mode string `json:"mode"`
	// Token is empty when the machine is to boot from its disk.
	Token string `json:"token,omitempty"`
}

func (s *Server) self(w http.ResponseWriter, r *http.Request, v *view) {
	mac, ok := s.cfg.Owner(remote(r))
	if !ok {
		http.Error(w, "no network card is known to have your address", http.StatusNotFound)
		return
	}
	answer := Self{MAC: mac.String(), Mode: string(segment.BootDisk)}
	if t, ok := s.find(v, asked{mac: mac, arch: r.URL.Query().Get("arch")}); ok {
		answer.Mode, answer.Token = string(t.mode), t.token
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// A client that is gone gets no error.
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Server) bootFile(w http.ResponseWriter, r *http.Request, v *view, to route) {
	t, ok := s.byToken(v, to.token, r.URL.Query().Get("arch"))
	if !ok {
		http.Error(w, "this boot token is not, or no longer, that of an assignment", http.StatusGone)
		return
	}
	s.cfg.Log.Info("boot file asked for", "file", to.file, "remote", r.RemoteAddr, "method", r.Method)
	switch to.file {
	case fileScript:
		text(w, r, bootScript(s.base, t))
	case fileKernel:
		s.sendBlob(w, r, t.files.Kernel)
	case fileInitrd:
		s.sendBlob(w, r, t.files.Initrd)
	default:
		s.sendUKI(w, r, t)
	}
}

func (s *Server) byToken(v *view, token, arch string) (target, bool) {
	files, found := v.installer(arch)
	if !found {
		return target{}, false
	}
	if token == installerenrol.DiscoveryToken && s.cfg.Segment.Discovery == segment.DiscoveryBoot {
		return target{token: token, mode: segment.BootRescue, files: files}, true
	}
	list := v.token(token)
	if len(list) == 0 {
		return target{}, false
	}
	return target{token: token, mode: list[0].Mode, files: files}, true
}

func (s *Server) blob(w http.ResponseWriter, r *http.Request, v *view, sha256 string) {
	if !v.blobs[sha256] {
		http.Error(w, "no assignment needs such a blob now", http.StatusNotFound)
		return
	}
	s.sendBlob(w, r, sha256)
}

func remote(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // no host's address
	}
	return from.Addr().Unmap()
}

// text answers with a script. Its length is sent even for HEAD.
func text(w http.ResponseWriter, r *http.Request, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	// A client that is gone gets no error.
	_, _ = strings.NewReader(body).WriteTo(w)
}
