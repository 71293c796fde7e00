package operation

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// GetErasureCertificate implements OperationService. Machines that were deleted have theirs as well.
func (s *Server) GetErasureCertificate(
	ctx context.Context, r *baremetalv1.GetErasureCertificateRequest,
) (*baremetalv1.ErasureCertificate, error) {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return nil, err
	}
	op, err := s.stores.OperationQueries.GetOperation(ctx, r.GetOperationId())
	if err != nil {
		return nil, err
	}
	disks, err := erased(op)
	if err != nil {
		return nil, err
	}
	m, err := s.stores.Machines.KnownMachine(ctx, op.GetMachineId())
	if err != nil {
		return nil, err
	}
	verdict, err := s.stores.Timelines.VerifyTimeline(ctx, op.GetMachineId())
	if err != nil {
		return nil, err
	}
	if !verdict.GetOk() {
		return nil, failure.Precondition(
			"HISTORY_BROKEN",
			"the history of machine %s is not as it was written, at entry %d: %s",
			op.GetMachineId(),
			verdict.GetBrokenSeq(),
			verdict.GetBrokenWhy(),
		)
	}
	key, chain, err := s.Config.DocumentSigner(ctx)
	if err != nil {
		return nil, err
	}
	document, err := erasure.Sign(erasure.Statement{
		Version: erasure.Version, IssuedAt: s.Clock.Now().UTC().Truncate(time.Second), IssuedBy: s.Config.Info.ControllerID,
		Machine: erasure.Machine{ID: m.GetMachineId(), ExternalID: m.GetSpec().GetExternalId(),
			Serial: m.GetSpec().GetSerial(), Simulated: m.GetStatus().GetSimulated()},
		Work: workOf(op), Disks: disks,
		History: erasure.History{Entries: verdict.GetEntries(), Head: hex.EncodeToString(verdict.GetHeadHash())},
	}, key, chain)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ErasureCertificate{Document: string(document)}, nil
}

// erased are the disks that the operation has proven to be.
func erased(op *baremetalv1.Operation) ([]erasure.Disk, error) {
	if op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		return nil, failure.Precondition("ERASURE_NOT_PROVEN", "operation %s is %s, and has not ended well",
			op.GetOperationId(), op.GetPhase())
	}
	disks, err := erasure.Disks(op.GetEvidence())
	if errors.Is(err, erasure.ErrNoDisks) || errors.Is(err, erasure.ErrIncomplete) {
		return nil, failure.Precondition("ERASURE_NOT_PROVEN", "operation %s: %v", op.GetOperationId(), err)
	}
	return disks, err
}

func workOf(op *baremetalv1.Operation) erasure.Work {
	proof := op.GetEvidence()
	return erasure.Work{
		ID:            op.GetOperationId(),
		Type:          op.GetType().String(),
		RequestID:     op.GetRequestId(),
		CreatedAt:     op.GetCreatedAt().AsTime(),
		EndedAt:       op.GetFinishedAt().AsTime(),
		Installer:     proof[evidence.Installer],
		IdentityLevel: proof[evidence.IdentityLevel],
		Trust:         proof[evidence.IdentityTrust],
	}
}
