package machine

import (
	"context"
	"encoding/json"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/hardware"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// GetHardwareTests reads what the newest tests of a machine's hardware have found. The values of the last are compared
// with those of other machines of its model.
func (s *Store) GetHardwareTests(
	ctx context.Context, machineID string, howMany int32,
) (*baremetalv1.HardwareTests, error) {
	m, err := s.GetMachine(ctx, machineID, "")
	if err != nil {
		return nil, err
	}
	q := s.db.Lists(ctx)
	rows, err := q.HardwareTestsOf(ctx, dbsqlc.HardwareTestsOfParams{MachineID: machineID, HowMany: howMany})
	if err != nil {
		return nil, fmt.Errorf("read tests of hardware: %w", err)
	}
	out := &baremetalv1.HardwareTests{MachineId: machineID}
	norms := hardware.Norms{}
	for i, row := range rows {
		seen := convert.JSONToMap(row.Evidence)
		if i == 0 && seen[evidence.HardwareModel] != "" {
			if norms, err = normsOf(ctx, q, seen[evidence.HardwareModel], machineID); err != nil {
				return nil, err
			}
		}
		t := &baremetalv1.HardwareTest{
			OperationId: row.OperationID, FinishedAt: convert.TimestampPtr(row.FinishedAt), Model: seen[evidence.HardwareModel],
			Passed: row.Outcome == string(operation.OutcomeSucceeded), Simulated: m.GetStatus().GetSimulated(),
		}
		for _, r := range resultsIn(seen) {
			t.Results = append(t.Results, resultMessage(r, norms))
		}
		out.Tests = append(out.Tests, t)
		norms = nil
	}
	return out, nil
}

func normsOf(ctx context.Context, q *dbsqlc.Queries, model, but string) (hardware.Norms, error) {
	rows, err := q.HardwareTestsOfModel(ctx, dbsqlc.HardwareTestsOfModelParams{Model: model, MachineID: but})
	if err != nil {
		return nil, fmt.Errorf("read tests of the model: %w", err)
	}
	var all [][]evidence.HardwareResult
	for _, row := range rows {
		all = append(all, resultsIn(convert.JSONToMap(row.Evidence)))
	}
	return hardware.NormsOf(all), nil
}

// resultsIn reads what an agent has found. What cannot be read is none.
func resultsIn(seen map[string]string) []evidence.HardwareResult {
	var all []evidence.HardwareResult
	if json.Unmarshal([]byte(seen[evidence.HardwareTests]), &all) != nil {
		return nil
	}
	return all
}

func resultMessage(r evidence.HardwareResult, norms hardware.Norms) *baremetalv1.HardwareTestResult {
	n := norms.Of(r)
	return &baremetalv1.HardwareTestResult{
		Test: r.Test, Part: r.Part, Class: r.Class, Verdict: r.Verdict, Value: r.Figure, Unit: r.Unit, Detail: r.Detail,
		Norm: n.Value, NormMachines: int32(n.Machines), Warning: n.Warning(r),
	}
}
