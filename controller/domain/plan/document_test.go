package plan_test

import (
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceProviderActions(t *testing.T) {
	var rows [][]string
	for name, done := range document.CommentedKeys(t, "controller/domain/kind", "ProviderActions") {
		loses := ""
		action := &baremetalv1.Step_ProviderAction{ProviderAction: &baremetalv1.ProviderAction{Action: name}}
		if plan.Destructive(&baremetalv1.Plan{Steps: []*baremetalv1.Step{{Kind: action}}}) {
			loses = "yes"
		}
		rows = append(rows, []string{"`" + name + "`", strings.Join(kind.ProviderActions[name], ", "), done, loses})
	}
	if len(rows) != len(kind.ProviderActions) {
		t.Errorf("%d of %d actions have a comment", len(rows), len(kind.ProviderActions))
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	document.Check(t, "maas-actions.md", "Actions of MAAS", "The actions of a step of kind `provider_action`. "+
		"[MAAS](maas.md) has their rules.\n\n"+
		document.Table([]string{"action", "params", "done when MAAS shows", "loses data"}, rows))
}
