package fleet_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// ages is the table of the design, written down once more: the witness of each condition, and what silence makes of it.
var ages = map[fleet.ConditionType]string{
	fleet.Reachable:         "machine unknown",
	fleet.BMCReachable:      "site unknown",
	fleet.HardwareFault:     "site keeps",
	fleet.ProviderDrift:     "site keeps",
	fleet.Degraded:          "agent keeps",
	fleet.RAIDDegraded:      "agent keeps",
	fleet.Provisioned:       "record never",
	fleet.InCustomerCluster: "record never",
	fleet.Drained:           "record never",
	fleet.NeedsIntervention: "record never",
	fleet.OperationCanceled: "record never",
	fleet.RMA:               "record never",
	fleet.RetiredFlag:       "record never",
}

// declaredConditions reads the constants of ConditionType out of the package's source: a new one must have a row.
func declaredConditions(t *testing.T) (out []fleet.ConditionType) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "machine.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if named, ok := spec.Type.(*ast.Ident); ok && named.Name == "ConditionType" {
			out = append(out, fleet.ConditionType(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)))
		}
		return true
	})
	return out
}

func TestEveryConditionHasAWitness(t *testing.T) {
	declared := declaredConditions(t)
	if len(declared) != len(ages) || len(fleet.ConditionTypes()) != len(ages) {
		t.Errorf("%d conditions are declared, %d are in the table, %d in this test", len(declared),
			len(fleet.ConditionTypes()), len(ages))
	}
	for _, c := range declared {
		witness, silence, known := fleet.Aging(c)
		if got := string(witness) + " " + string(silence); !known || got != ages[c] {
			t.Errorf("%s: %q, want %q", c, got, ages[c])
		}
		if aged := slices.Contains(fleet.Witnessed(witness, silence), c); !aged {
			t.Errorf("%s is not among the conditions of its witness", c)
		}
		if (witness == fleet.WitnessRecord) != (silence == fleet.SilenceNever) {
			t.Errorf("%s ages without a witness, or has one and never ages", c)
		}
	}
	if _, _, known := fleet.Aging("NoSuch"); known {
		t.Error("a condition that does not exist has a witness")
	}
}
