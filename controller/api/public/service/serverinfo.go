package service

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// ServerInfo returns which controller answers, and whether the fleet is frozen.
func (s *Base) ServerInfo(ctx context.Context) (*baremetalv1.ServerInfo, error) {
	schema, err := s.stores.Schema.SchemaVersion(ctx)
	if err != nil {
		return nil, err
	}
	frozen, notSeen, err := s.stores.Incarnations.Frozen(ctx)
	if err != nil {
		return nil, err
	}
	root := s.Config.CA.RootHash()
	info := &baremetalv1.ServerInfo{
		Version: s.Config.Info.Version, ControllerId: s.Config.Info.ControllerID, ServerTime: Stamp(s.Clock.Now()),
		CaHash: hex.EncodeToString(root[:]), SchemaVersion: int32(schema), NotWired: unbuilt(),
		FrozenSince: StampIfSet(frozen), AgentsNotSeen: notSeen, RestAddress: s.Config.Info.RESTAddress,
	}
	since, awaited, err := s.CatchingUp(ctx)
	if err != nil {
		return nil, err
	}
	info.NotListeningSince, info.AgentsAwaited = StampIfSet(since), awaited
	if frozen.IsZero() {
		return info, nil
	}
	why, err := s.stores.Incarnations.WhyFrozen(ctx)
	if err != nil {
		return nil, err
	}
	if why.Active() {
		info.FrozenReason, info.FrozenBecause = why.Reason(), why.Cause()
	}
	return info, nil
}

// connectedWithin is how long before an outage an agent was heard that counts as connected at its begin.
const connectedWithin = time.Minute

// CatchingUp returns since when no controller could hear agents, and how many of them have not come back. Both are zero
// once all are back, or have had the time to.
func (s *Base) CatchingUp(ctx context.Context) (since time.Time, awaited int32, err error) {
	listening, err := s.stores.Incarnations.Listening(ctx)
	if err != nil || !listening.CatchingUp(s.Clock.Now()) {
		return time.Time{}, 0, err
	}
	awaited, err = s.stores.Incarnations.AgentsAwaited(ctx, connectedWithin)
	if err != nil || awaited == 0 {
		return time.Time{}, 0, err
	}
	return listening.AwaySince, awaited, nil
}

// built are reasons that earlier versions gave; operations that end with one stand here too.
var built = []baremetalv1.Reason{
	baremetalv1.Reason_REPAVE_NOT_WIRED, baremetalv1.Reason_IMAGE_CATALOGUE_NOT_WIRED,
	baremetalv1.Reason_SITE_SERVICES_NOT_WIRED,
	baremetalv1.Reason_EXPLAIN_NOT_WIRED, baremetalv1.Reason_TIMELINE_NOT_WIRED,
	baremetalv1.Reason_WEBHOOKS_NOT_WIRED, baremetalv1.Reason_NODE_LIFECYCLE_NOT_WIRED,
	baremetalv1.Reason_WORKFLOWS_NOT_WIRED, baremetalv1.Reason_IDENTITY_LEVEL_NOT_WIRED,
	baremetalv1.Reason_OPERATION_TYPE_NOT_WIRED,
}

// unbuilt returns the reasons for published work that is not built.
func unbuilt() []string {
	var out []string
	for name, number := range baremetalv1.Reason_value {
		if strings.HasSuffix(name, "_NOT_WIRED") && !slices.Contains(built, baremetalv1.Reason(number)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
