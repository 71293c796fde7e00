package storetest

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// Claim asks for a certificate as a box with a TPM, nil for none. proven says that the box has activated a credential.
func (r *MetalRig) Claim(token, key string, chip *identity.Key, proven bool, at time.Time) *identitystore.Vouched {
	r.T.Helper()
	v, err := r.Store.Identities.Vouch(r.T.Context(), identitystore.VouchRequest{
		SiteAgentID: r.Site.ID, MachineID: "m-1", BootToken: token, MAC: MetalMAC, PublicKeyDigest: []byte(key), TPM: chip,
		Proven: proven,
	}, NewSigner().SignFor, at)
	if err != nil {
		r.T.Fatal(err)
	}
	return v
}

// Reimaging begins a reimage, and returns its boot token.
func (r *MetalRig) Reimaging(request string) (op, token string) {
	r.T.Helper()
	op = Start(r.T, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: request, Type: fleet.Reimage,
		Inputs: Inputs("tiny")}).GetOperationId()
	r.Decide(op, operation.Evaluate{})
	return op, r.Applied().GetAssignments()[0].GetToken()
}

func (r *MetalRig) Cancel(op string) {
	r.T.Helper()
	r.Decide(op, operation.CancelAsked{Actor: "tester"})
	r.Decide(op, operation.Quarantine{Reason: "OUTCOME_UNKNOWN", Message: "the test is done with it"})
}

// Verbs counts the audit rows of the machine by their verb.
func (r *MetalRig) Verbs(verb string) int {
	r.T.Helper()
	return Count(r.T, r.Store, "SELECT count(*) FROM audit_log WHERE target_id = 'm-1' AND verb = $1", verb)
}

// TryReimage asks for a reimage.
func (r *MetalRig) TryReimage(request string) error {
	_, _, err := r.Store.Operations.Start(r.T.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: request,
		Type: fleet.Reimage, Inputs: Inputs("tiny"), Actor: "tester"}, Now())
	return err
}
