// Package installerenrol receives the requests of netbooted systems to be certified. It checks that the system is where
// the assignment has it, and then lets the controller decide.
//
// There are three checks. The boot token is that of a current assignment to the installer or to rescue. The network
// card belongs to that assignment. The request's address is lent to that card. The certificate is for a key; the
// controller refuses a second key for the same token.
package installerenrol

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/mediaproof"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Config is what a Desk needs.
type Config struct {
	// Token returns the assignments that a boot token stands for, as segment.Table does.
	Token func(token string) []segment.Assignment
	// Waiting returns the assignment of a network card that was booted for discovery, with DiscoveryToken, once it has one
	// that boots. nil means that there is no discovery.
	Waiting func(segment.MAC) (segment.Assignment, bool)
	// Owner returns the network card that has an address now.
	Owner func(netip.Addr) (segment.MAC, bool)
	// Vouch asks the controller.
	Vouch func(context.Context, *fleetv1.VouchInstallerRequest) (*fleetv1.VouchInstallerResponse, error)
	// Certified is called after an installer of the assignment has got its certificate, but for one that must prove a
	// TPM first. Nil does nothing.
	Certified func(segment.Assignment)
	// Proxy is the base URL of the boot server.
	Proxy string
	Log   *slog.Logger
}

// Handler answers enrolments of one segment.
type Handler struct {
	cfg  Config
	busy chan struct{}
}

const (
	maxBody = 64 << 10
	// maxBusy bounds how many requests wait for the controller at once.
	maxBusy = 64
	// vouchWait is within the patience of an HTTP client.
	vouchWait = 10 * time.Second
	// discoveryWait is the time after which an unknown machine may ask again.
	discoveryWait = 5 * time.Second
)

// DiscoveryToken stands in the boot URLs of machines that are in no assignment. It opens the boot files where the
// segment boots unknown machines. To enrol, it is as good as the token of the assignment that such a machine gets
// later.
const DiscoveryToken = "discovery"

// New makes a Desk.
func New(cfg Config) *Handler { return &Handler{cfg: cfg, busy: make(chan struct{}, maxBusy)} }

// Serve answers POST /boot/<token>/enrol.
func (d *Handler) Serve(w http.ResponseWriter, r *http.Request, token string) {
	select {
	case d.busy <- struct{}{}:
		defer func() { <-d.busy }()
	default:
		refuse(w, &refusal{http.StatusServiceUnavailable, "TOO_MANY_REQUESTS", "too many machines enrol at once",
			time.Second})
		return
	}
	answer, err := d.enrol(r, token)
	var no *refusal
	if errors.As(err, &no) {
		d.cfg.Log.Warn("enrolment refused", "remote", r.RemoteAddr, "status", no.status, "reason", no.reason, "error",
			no.message)
		refuse(w, no)
		return
	}
	if answer.Challenge != nil {
		d.cfg.Log.Info("installer asked for the proof of its TPM", "remote", r.RemoteAddr, "machine_id", answer.MachineID,
			"operation_id", answer.OperationID)
		reply(w, http.StatusOK, answer)
		return
	}
	d.cfg.Log.Info("installer certified", "remote", r.RemoteAddr, "machine_id", answer.MachineID,
		"operation_id", answer.OperationID, "installer_agent_id", answer.AgentID)
	reply(w, http.StatusOK, answer)
}

func (d *Handler) enrol(r *http.Request, token string) (Answer, error) {
	req, err := read(r.Body)
	if err != nil {
		return Answer{}, err
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address has no owner
	a, err := d.check(token, req, from.Addr().Unmap())
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), vouchWait)
	defer cancel()
	ask := &fleetv1.VouchInstallerRequest{
		MachineId: a.MachineID, OperationId: a.OperationID, BootToken: a.Token, Csr: req.CSR, MacAddress: a.MAC.String(),
		Address: from.Addr().Unmap().String(), BootId: req.BootID, HardwareFingerprint: req.HardwareFingerprint,
		MediaProof: req.MediaProof,
	}
	if t := req.TPM; t != nil {
		ask.EndorsementKey, ask.EndorsementCertificate, ask.AttestationKey = t.EndorsementKey, t.EndorsementCertificate,
			t.AttestationKey
	}
	v, err := d.cfg.Vouch(ctx, ask)
	if err != nil {
		return Answer{}, fromController(err)
	}
	var challenge *Challenge
	if len(v.GetChallenge()) > 0 {
		challenge = &Challenge{
			Sealed: v.GetChallenge(), CredentialBlob: v.GetCredentialBlob(), EncryptedSeed: v.GetEncryptedSeed(),
			Addresses: v.GetEnrolmentAddresses(),
		}
	}
	if challenge == nil && d.cfg.Certified != nil {
		d.cfg.Certified(a)
	}
	return Answer{
		Challenge:           challenge,
		CertificateChainPEM: string(v.GetCertificateChainPem()), TrustBundlePEM: string(v.GetTrustBundlePem()),
		FleetAddresses: v.GetFleetAddresses(), Proxy: d.cfg.Proxy, AgentID: v.GetAgentId(), MachineID: v.GetMachineId(),
		OperationID: v.GetOperationId(), GrantKeys: v.GetGrantKeys(), Mode: string(a.Mode),
	}, nil
}

func read(body io.Reader) (Request, error) {
	var req Request
	data, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	switch {
	case err != nil:
		return req, &refusal{http.StatusBadRequest, "INVALID_FIELD", "the request was cut short", 0}
	case len(data) > maxBody:
		return req, &refusal{http.StatusRequestEntityTooLarge, "INVALID_FIELD", "the request is too big", 0}
	case json.Unmarshal(data, &req) != nil:
		return req, &refusal{http.StatusBadRequest, "INVALID_FIELD", "the request is not JSON of the right form", 0}
	case len(req.CSR) == 0:
		return req, &refusal{http.StatusBadRequest, "INVALID_FIELD", "csr is missing", 0}
	}
	return req, nil
}

// check finds the assignment that the system stands for.
func (d *Handler) check(token string, req Request, from netip.Addr) (segment.Assignment, error) {
	mac, err := segment.ParseMAC(req.MAC)
	if err != nil {
		return segment.Assignment{}, &refusal{http.StatusBadRequest, "INVALID_FIELD", "mac is not a MAC address", 0}
	}
	a, err := d.assignment(token, mac)
	if err != nil {
		return a, err
	}
	if a.Media != nil {
		return a, fromImage(a, token, req)
	}
	if owner, ok := d.cfg.Owner(from); !ok || owner != mac {
		return a, notThere("the address " + from.String() + " is not lent to " + mac.String())
	}
	return a, nil
}

// fromImage checks the proof that an installer was started from the image that the machine's BMC attached. Without it
// the request is refused: an address on the segment does not prove which machine sends it.
func fromImage(a segment.Assignment, token string, req Request) error {
	missing := &refusal{http.StatusForbidden, "MEDIA_PROOF_MISSING",
		"the machine starts from an image that its BMC attaches, and this system does not prove that it was", 0}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return missing
	}
	digest, err := pki.PublicKeyHash(csr.PublicKey)
	if err != nil || !mediaproof.Verify(a.Media.Secret, token, digest[:], req.MediaProof) {
		return missing
	}
	return nil
}

func (d *Handler) assignment(token string, mac segment.MAC) (a segment.Assignment, err error) {
	if token == DiscoveryToken && d.cfg.Waiting != nil {
		a, ok := d.cfg.Waiting(mac)
		if !ok {
			err = &refusal{http.StatusServiceUnavailable, "MACHINE_NOT_FOUND", "the machine is in no inventory yet",
				discoveryWait}
		}
		return a, err
	}
	list := d.cfg.Token(token)
	if len(list) == 0 {
		return a, &refusal{
			http.StatusGone, "BOOT_TOKEN_DEAD", "this boot token is not, or no longer, that of an assignment", 0,
		}
	}
	for _, a := range list {
		if a.MAC == mac {
			return a, nil
		}
	}
	return a, notThere("the network card " + mac.String() + " is not one of the machine that the token is for")
}

func notThere(message string) error {
	return &refusal{http.StatusForbidden, "NOT_WHERE_ASSIGNED", message, 0}
}

// refusal is an answer other than 200.
type refusal struct {
	status          int
	reason, message string
	after           time.Duration
}

func (r *refusal) Error() string { return r.reason + ": " + r.message }

// fromController keeps reason and message, and makes a status of the kind.
func fromController(err error) error {
	f := failure.From(err)
	no := &refusal{status: http.StatusForbidden, reason: f.Reason, message: f.Message}
	switch {
	case f.Retryable || f.Kind == failure.KindUnavailable || f.Kind == failure.KindDeadline ||
		f.Kind == failure.KindCanceled:
		no.status, no.after = http.StatusServiceUnavailable, max(f.RetryAfter, time.Second)
	case f.Reason == "ENROLMENT_CONTESTED":
		no.status = http.StatusConflict
	case f.Kind == failure.KindInternal:
		no.status, no.after = http.StatusServiceUnavailable, 5*time.Second
	case f.Kind == failure.KindInvalid:
		no.status = http.StatusBadRequest
	}
	if no.reason == "" {
		no.reason = "UNAVAILABLE"
	}
	return no
}

func refuse(w http.ResponseWriter, no *refusal) {
	if no.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((no.after+time.Second-1)/time.Second)))
	}
	reply(w, no.status, Problem{Reason: no.reason, Message: no.message})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A client that is gone gets no error.
	_ = json.NewEncoder(w).Encode(body)
}
