package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// maxLeftBehind is how many machines with an unused slot an answer names.
const maxLeftBehind = 5

// explainOffers asks what may be asked of the machine now.
func (s *Store) explainOffers(ctx context.Context, g *gather) (err error) {
	if g.m.DeletedAt != nil {
		return nil
	}
	o := &g.f.Offers
	if o.Starts, err = s.mayStarts(ctx, g); err != nil {
		return err
	}
	if err := s.mayReimage(ctx, g); err != nil {
		return err
	}
	o.Clears = operationstore.MayClear(g.m) == nil
	if o.Moves, err = s.nodes.MayMoves(ctx, g.m.MachineID); err != nil {
		return err
	}
	err = s.workflows.Probe(ctx, func(q *dbsqlc.Queries) error {
		refused, err := workflowstore.RefusalIn(s.nodes.MayMove(ctx, q, g.m,
			nodestore.TransitionRequest{MachineID: g.m.MachineID, To: node.Pending, Force: true}))
		o.Restarts = err == nil && refused == nil
		return err
	})
	if err != nil {
		return err
	}
	if g.f.Workflow != nil {
		o.Workflow, err = s.workflows.OfferedActions(ctx, *g.f.Workflow, g.workflowParams, g.f.Now)
	}
	return err
}

func (s *Store) mayStarts(ctx context.Context, g *gather) (map[explain.Start]*fleet.Refusal, error) {
	out := map[explain.Start]*fleet.Refusal{}
	starts := explain.Starts()
	for _, c := range g.f.Causes {
		if c.Cause == fleet.CausePlan {
			starts = append(starts, explain.Start{Type: fleet.RunPlan, Plan: c.Subject})
		}
	}
	err := s.workflows.Probe(ctx, func(q *dbsqlc.Queries) error {
		for _, st := range starts {
			_, err := s.operations.Fits(ctx, q, g.m, startOf(st, g))
			if out[st], err = workflowstore.RefusalIn(err); err != nil {
				return fmt.Errorf("ask about %s: %w", st.Type, err)
			}
		}
		return nil
	})
	return out, err
}

// mayReimage asks again about a reimage that is refused for its image: a caller may name one of the catalogue. Where
// the catalogue has none, and the machine needs one, IMAGE_NOT_FOUND is the answer.
func (s *Store) mayReimage(ctx context.Context, g *gather) error {
	o := &g.f.Offers
	if r := o.Starts[explain.StartReimage]; r == nil || r.Reason != "MACHINE_HAS_NO_IMAGE" &&
		r.Reason != "IMAGE_NOT_FOUND" {
		return nil
	}
	return s.workflows.Probe(ctx, func(q *dbsqlc.Queries) error {
		images, err := q.ListImages(ctx, dbsqlc.ListImagesParams{Kind: catalogstore.KindOS, PageSize: 1})
		if err != nil {
			return fmt.Errorf("look for an image: %w", err)
		}
		ref := "of-the-catalogue" // which is empty: a machine that takes any name takes this one
		if len(images) > 0 {
			ref = images[0].ImageRef
		}
		start := operationstore.StartRequest{MachineID: g.m.MachineID, Type: fleet.Reimage,
			Inputs: kind.Inputs{ImageRef: ref}}
		_, err = s.operations.Fits(ctx, q, g.m, start)
		o.Starts[explain.StartReimage], err = workflowstore.RefusalIn(err)
		o.NamesImage = o.Starts[explain.StartReimage] == nil
		return err
	})
}

// startOf is the request that an offer stands for.
func startOf(st explain.Start, g *gather) operationstore.StartRequest {
	r := operationstore.StartRequest{MachineID: g.m.MachineID, Type: st.Type, PlanID: st.Plan}
	switch st {
	case explain.StartReimage:
		if g.f.Op != nil && g.f.Op.Type == fleet.Reimage {
			r.Inputs.ImageRef = g.f.Params["image_ref"]
		}
	case explain.StartPowerCycle:
		r.PlanID, r.Inputs = "", kind.Inputs{RebootMode: "bmc"}
	case explain.StartReconfigure:
		r.Inputs.Config = &baremetalv1.NetReconfig{Hostname: "m"}
	}
	return r
}

// causes reads for what the machine needs a person, the gravest first.
func (g *gather) causes(ctx context.Context) error {
	rows, err := g.q.CausesOf(ctx, g.m.MachineID)
	if err != nil {
		return fmt.Errorf("read causes: %w", err)
	}
	for _, r := range rows {
		g.f.Causes = append(g.f.Causes, explain.MachineCause{
			Cause: fleet.Cause(r.Cause), Subject: r.Subject, Reason: r.Reason, Message: r.Message, OperationID: r.OperationID,
			Since: r.Since,
		})
	}
	slices.SortStableFunc(g.f.Causes, func(a, b explain.MachineCause) int { return fleet.Graver(a.Cause, b.Cause) })
	return nil
}

// words reads what people have done to the machine lately.
func (g *gather) words(ctx context.Context) error {
	rows, err := g.q.WordsAbout(ctx, g.m.MachineID)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	for _, r := range rows {
		data := convert.JSONToMap(r.EventData)
		g.f.Words = append(g.f.Words, explain.Override{
			At: r.Ts, Actor: r.Actor, Verb: r.Verb, OperationID: r.OperationID, Comment: data["comment"], Data: data,
		})
	}
	return nil
}

// budgetFlags are the flags of `ingot budget set` that make a budget the rule.
func budgetFlags(r budget.Rule) string {
	text := "--harm " + strings.ToLower(r.Harm.String()) + " --domain " + r.Domain
	if r.Value != "" {
		text += " --value " + r.Value
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"at-once", r.AtOnce}, {"percent", r.Percent}, {"per-hour", r.PerHour}, {"per-day", r.PerDay}} {
		if f.n > 0 {
			text += " --" + f.name + " " + strconv.Itoa(f.n)
		}
	}
	return text
}
