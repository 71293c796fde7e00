package httpboot

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// PhoneHome is a system that is to phone home, by the SHA-256 of its secret.
type PhoneHome struct {
	MachineID, OperationID string
	SecretSHA256           [sha256.Size]byte
}

// PhoneCall is what a system has said of itself, and where it called from.
type PhoneCall struct {
	PhoneHome
	From                             netip.Addr
	InstanceID, Hostname, SSHHostKey string
}

const (
	// maxPhoneBody bounds the body of a call, in bytes: three host keys take a tenth of it.
	maxPhoneBody = 16 << 10
	// maxPhoneField bounds one field of it.
	maxPhoneField = 1 << 10
	// maxPhoneCalls bounds the different calls with one secret that are reported to the controller.
	maxPhoneCalls = 4
)

// heard remembers the calls that were kept, by their secret: a repetition is answered and not reported again.
type heard struct {
	mu    sync.Mutex
	calls map[[sha256.Size]byte][]PhoneCall
}

// phoneHome takes a POST of cloud-init's module phone_home, which is a form. The answer to a wrong secret is that to
// any unknown path.
func (s *Server) phoneHome(w http.ResponseWriter, r *http.Request, v *view, secret string) {
	of, known := v.phoneHomes[sha256.Sum256([]byte(secret))]
	if !known {
		http.Error(w, "there is nothing here", http.StatusNotFound)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxPhoneBody)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "this is no form of at most 16 KiB", http.StatusBadRequest)
		return
	}
	field := func(name string) string { return printable(r.PostForm.Get(name)) }
	call := PhoneCall{
		PhoneHome: of, From: remote(r), InstanceID: field("instance_id"), Hostname: field("hostname"),
		SSHHostKey: field("pub_key_ed25519"),
	}
	if err := s.keep(r.Context(), v, call); err != nil {
		s.cfg.Log.Warn("a phone-home was not kept; it is asked to come again", "machine_id", of.MachineID, "operation_id",
			of.OperationID, "error", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// keep hands over a call with new content.
func (s *Server) keep(ctx context.Context, v *view, call PhoneCall) error {
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	if s.heard.calls == nil {
		s.heard.calls = map[[sha256.Size]byte][]PhoneCall{}
	}
	for secret := range s.heard.calls {
		if _, known := v.phoneHomes[secret]; !known {
			delete(s.heard.calls, secret)
		}
	}
	before := s.heard.calls[call.SecretSHA256]
	for _, c := range before {
		if c == call {
			return nil
		}
	}
	if len(before) >= maxPhoneCalls {
		return nil
	}
	if err := s.cfg.PhonedHome(ctx, call); err != nil {
		return err
	}
	s.heard.calls[call.SecretSHA256] = append(before, call)
	s.cfg.Log.Info("a system has phoned home", "machine_id", call.MachineID, "operation_id", call.OperationID, "from",
		call.From.String(), "instance_id", call.InstanceID)
	return nil
}

// printable is a field without what could harm a log or a screen; "" of one that is too long.
func printable(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxPhoneField || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}
