package session

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// saidAtHome are what a report may say of a system; maxSaid bounds each, in bytes.
var saidAtHome = []string{evidence.PhonedHomeAt, evidence.PhonedHomeFrom, evidence.InstanceID, evidence.SystemHostname,
	evidence.SystemSSHKey}

const maxSaid = 1 << 10

// PhoneHomeEvent stores the report of a system that knows the secret of an operation under way on a machine of the
// site. It returns that operation, which may have been waiting; "" where there is none. A repeated event returns the
// operation again: the process before may have died on its way to it.
func (s *Store) PhoneHomeEvent(
	ctx context.Context, k EventKey, site string, fields map[string]string, now time.Time,
) (operationID string, err error) {
	secret, err := hex.DecodeString(fields[evidence.PhoneHomeSecret])
	if err != nil {
		return "", s.SkipEvent(ctx, k)
	}
	err = s.once(ctx, k, func(q *dbsqlc.Queries) error {
		p, err := q.PhoneHomeBySecret(ctx, dbsqlc.PhoneHomeBySecretParams{SecretSha256: secret, Site: site})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find whose secret it is: %w", err)
		}
		operationID = p.OperationID
		if convert.JSONToMap(p.Said)[evidence.InstanceID] == evidence.InstanceOf(p.OperationID) {
			return nil // the first word of the right instance counts
		}
		said := map[string]string{}
		for _, name := range saidAtHome {
			if v := fields[name]; v != "" && len(v) <= maxSaid {
				said[name] = v
			}
		}
		raw, err := json.Marshal(said)
		if err != nil {
			return fmt.Errorf("serialize evidence: %w", err)
		}
		if err := q.SaidAtHome(ctx, dbsqlc.SaidAtHomeParams{OperationID: p.OperationID, Said: raw}); err != nil {
			return pgtx.Wrap(err, "keep what a system has said")
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: k.AgentID, Verb: "PHONE_HOME", Target: p.MachineID,
			Operation: p.OperationID, Data: said}, now)
	})
	return operationID, err
}
