package query

import (
	"maps"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/when"
)

var (
	OperationKeys = validate.Keys{
		"machine_id":     validate.Any,
		"request_id":     validate.Any,
		"type":           validate.Among(EnumNames(baremetalv1.Operation_OperationType_value, "")),
		"phase":          validate.Among(EnumNames(baremetalv1.Operation_Phase_value, "")),
		"created_after":  moment,
		"created_before": moment,
	}
	OperationWatchKeys = plus(OperationKeys, validate.Keys{"operation_id": validate.Any})
	RunKeys            = plus(OperationKeys, validate.Keys{"run_id": validate.Any, "type": validate.Among(runTypeNames())})
	RunWatchKeys       = plus(RunKeys, validate.Keys{"operation_id": validate.Any})
)

func plus(a, b validate.Keys) validate.Keys {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func runTypeNames() map[string]string {
	out := EnumNames(baremetalv1.Operation_OperationType_value, "")
	for name, t := range RunTypes {
		out[name] = string(t)
	}
	return out
}

func moment(value string) (string, bool) {
	_, ok := when.Exact(value)
	return value, ok
}

// OperationFilter is the store's filter for the terms of a request.
func OperationFilter(terms []validate.Term) (operationquery.OperationFilter, error) {
	var f operationquery.OperationFilter
	for _, t := range terms {
		switch t.Key {
		case "machine_id":
			f.MachineID = t.Value
		case "request_id":
			f.RequestID = t.Value
		case "type":
			f.Type = t.Value
		case "phase":
			f.Phase = t.Value
		case "operation_id", "run_id":
			if f.OperationID != "" {
				return f, failure.Invalid("INVALID_FILTER", "filter: operation_id and run_id are one key").
					WithField("filter", "operation_id and run_id are one key")
			}
			f.OperationID = t.Value
		case "created_after":
			f.CreatedAfter, _ = when.Exact(t.Value) // moment has parsed it before
		case "created_before":
			f.CreatedBefore, _ = when.Exact(t.Value) // moment has parsed it before
		}
	}
	return f, nil
}

// Matches reports whether one operation matches the filter, as the store's queries do.
func Matches(f operationquery.OperationFilter, op *baremetalv1.Operation) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	created := op.GetCreatedAt().AsTime()
	return same(f.MachineID, op.GetMachineId()) && same(f.RequestID, op.GetRequestId()) &&
		same(f.OperationID, op.GetOperationId()) && same(f.Type, op.GetType().String()) &&
		same(f.Phase, op.GetPhase().String()) &&
		(f.CreatedAfter.IsZero() || created.After(f.CreatedAfter)) &&
		(f.CreatedBefore.IsZero() || created.Before(f.CreatedBefore))
}

// RunTypes are the names that runs have had for two of the operation types.
var RunTypes = map[string]fleet.OperationType{"REPAVE": fleet.Reimage, "NET_RECONFIG": fleet.Reconfigure}
