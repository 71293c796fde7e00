package identity

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// judgeIdentity decides what a system must prove before it is certified for an assignment. The machine is locked.
func judgeIdentity(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a dbsqlc.BootAssignment, r VouchRequest,
) (identity.Verdict, error) {
	f := identity.Facts{
		Recorded: m.TpmKeyDigest, Trust: identity.Trust(m.TpmKeyTrust), Installs: a.Mode == operation.BootInstaller,
		Shown:       r.TPM,
		Media:       r.Media,
		RecordedNow: m.TpmKeyAt != nil && !m.TpmKeyAt.Before(a.UpdatedAt),
	}
	var err error
	if f.MediaAsked, err = mediaAsked(ctx, q, pgtx.StrVal(a.OperationID)); err != nil {
		return identity.Verdict{}, err
	}
	if f.Required, err = requiredIdentity(ctx, q, m.MachineID); err != nil {
		return identity.Verdict{}, err
	}
	if f.OtherHardware, err = otherHardware(ctx, q, m, r.Hardware); err != nil {
		return identity.Verdict{}, err
	}
	if r.TPM != nil {
		owner, err := q.MachineOfTPMKey(ctx, r.TPM.Digest)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return identity.Verdict{}, fmt.Errorf("look for the TPM's machine: %w", err)
		}
		f.Taken = err == nil && owner != m.MachineID
	}
	return identity.Decide(f), nil
}

// otherHardware returns what differs between the hardware that a system shows and the machine's: as its newest
// inventory has it, else as it is registered. A network card that has moved to another machine is met here.
func otherHardware(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, fingerprint string) (string, error) {
	shown := hwid.ParseFingerprint(fingerprint)
	shown.MACs = nil // the assignment is by its card
	observed, err := nodestate.ObservedHardware(ctx, q, m.MachineID)
	if err != nil {
		return "", err
	}
	v := hwid.Judge(observed, shown)
	if !v.Other() && !v.Confirmed {
		spec, err := convert.SpecFromJSON(m.Spec)
		if err != nil {
			return "", err
		}
		v = hwid.Judge(hwid.Facts{Serial: hwid.Text(spec.GetSerial()), Registered: true}, shown)
	}
	if !v.Other() {
		return "", nil
	}
	return v.String(), nil
}

// requiredIdentity is the higher of the levels that the machine's site and group ask for.
func requiredIdentity(ctx context.Context, q *dbsqlc.Queries, machineID string) (identity.Level, error) {
	r, err := q.RequiredIdentity(ctx, machineID)
	if err != nil {
		return "", fmt.Errorf("read the required identity level: %w", err)
	}
	return identity.Higher(identity.Level(r.BySite), identity.Level(r.ByGroup)), nil
}

// reportEvery limits how often refused systems are written to the audit log and to the operation, for one assignment.
const reportEvery = time.Minute

// refuseIdentity records a system that can't be the machine. Anybody on the segment can make such a request, so what it
// costs is bounded.
func refuseIdentity(ctx context.Context, q *dbsqlc.Queries, out *Vouched, m dbsqlc.Machine, a dbsqlc.BootAssignment,
	r VouchRequest,
	v identity.Verdict, now time.Time) error {
	out.Refused, out.Contested = v.Refused, v.Contested
	if a.ImpostorAt != nil && now.Sub(*a.ImpostorAt) < reportEvery && a.ImpostorReason == v.Refused.Reason {
		return nil
	}
	out.Report = true
	err := q.SetImpostor(ctx, dbsqlc.SetImpostorParams{
		MachineID: m.MachineID, Reason: v.Refused.Reason, Message: v.Refused.Message, Now: &now,
	})
	if err != nil {
		return fmt.Errorf("note the refused system: %w", err)
	}
	data := map[string]string{"mac": r.MAC, "reason": v.Refused.Reason}
	if r.TPM != nil {
		data["endorsement_key"] = hex.EncodeToString(r.TPM.Digest)
	}
	verb := "REFUSE_INSTALLER"
	if v.Contested {
		verb = "ENROLMENT_CONTESTED"
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: r.SiteAgentID, Verb: verb, Target: m.MachineID,
		Operation: out.OperationID, Data: data}, now)
}

// recordIdentity keeps what an installer has proved. A key that is recorded stays; a certificate that came later makes
// it the vendor's.
func recordIdentity(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, key *identity.Key, v identity.Verdict, now time.Time,
) error {
	p := dbsqlc.SetMachineIdentityParams{MachineID: m.MachineID, Level: string(v.Level), Trust: string(v.Trust), Now: &now}
	if v.Level == identity.LevelTPM {
		p.Digest = key.Digest
	}
	if err := q.SetMachineIdentity(ctx, p); err != nil {
		return fmt.Errorf("record the machine's identity: %w", err)
	}
	return nil
}

// mediaAsked reports whether the operation brings its machine into the installer by virtual media.
func mediaAsked(ctx context.Context, q *dbsqlc.Queries, operationID string) (bool, error) {
	specs, err := q.InstallerSteps(ctx, operationID)
	if err != nil {
		return false, fmt.Errorf("read the operation's steps: %w", err)
	}
	path, err := convert.InstallerPath(specs)
	return path == operation.PathMedia, err
}

// RequireIdentity sets the least level of a site's or a group's installers.
func (s *Store) RequireIdentity(
	ctx context.Context, site, group string, level identity.Level, actor, comment string, now time.Time,
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		target := site
		if group != "" {
			target = group
			err := q.RequireIdentityOfGroup(ctx, dbsqlc.RequireIdentityOfGroupParams{NodeGroup: group, Level: string(level),
				Now: now})
			if err != nil {
				return fmt.Errorf("store the group's level: %w", err)
			}
		} else {
			n, err := q.RequireIdentityOfSite(ctx, dbsqlc.RequireIdentityOfSiteParams{Site: site, Level: string(level)})
			if err != nil {
				return fmt.Errorf("store the site's level: %w", err)
			}
			if n == 0 {
				return failure.NotFound("SITE_NOT_FOUND", "there is no site %q; see `ingot site list`", site).WithField("site",
					"unknown")
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "REQUIRE_IDENTITY", Target: target, Comment: comment,
			Data: map[string]string{"site": site, "group": group, "level": string(level)},
		}, now)
	})
	if err != nil {
		return fmt.Errorf("require an identity level: %w", err)
	}
	return nil
}

// ForgetTPM removes the key that a machine is known by. Without one it changes nothing.
func (s *Store) ForgetTPM(
	ctx context.Context, machineID, actor, comment string, now time.Time,
) (*baremetalv1.Machine, error) {
	return s.machines.WithMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		n, err := q.ForgetTPMKey(ctx, machineID)
		if err != nil {
			return fmt.Errorf("forget the machine's TPM: %w", err)
		}
		if n == 0 {
			return nil
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "FORGET_TPM", Target: machineID, Comment: comment,
			Data: map[string]string{"endorsement_key": hex.EncodeToString(m.TpmKeyDigest)},
		}, now)
	})
}
