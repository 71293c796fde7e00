package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/chaos/receiver"
)

// A wide world has many machines without agents of their own, at one site whose agent acts on all of them. A budget
// bounds its reimages, a receiver takes its webhooks, and rollouts act on a part of its machines.
const (
	wideSite  = "site-1"
	widePart  = "part"
	wideHook  = "chaos"
	widePlan  = "reboot-once"
	allBudget = "all"
	// rolled is the value of the label of those machines that rollouts act on.
	rolled = "rolled"
)

func wideSpec() *baremetalv1.MachineSpec {
	return &baremetalv1.MachineSpec{Provider: "fake", Site: wideSite}
}

// draw draws the run of a seed.
func (c *Trial) draw(seed uint64) plan.Plan {
	if c.o.Wide {
		return plan.DrawWide(seed, c.faults())
	}
	return plan.Draw(seed, len(c.agents), c.faults())
}

// registerWide adds the machines of the site: first those that clients act on, then those of rollouts. The machine of
// the site's agent itself is none of them.
func (c *Trial) registerWide(ctx context.Context) error {
	agent := c.agents[0]
	c.machines = nil
	for i := range plan.WideMachines + plan.RolloutMachines {
		m := &baremetalv1.Machine{MachineId: fmt.Sprintf("w-%02d", i+1), Spec: wideSpec()}
		if i >= plan.WideMachines {
			m.MachineId = fmt.Sprintf("r-%02d", i+1-plan.WideMachines)
			m.Labels = map[string]string{widePart: rolled}
		}
		if err := c.register(ctx, m); err != nil {
			return err
		}
		c.machines = append(c.machines, target{m.GetMachineId(), agent})
	}
	return nil
}

// openWide sets the budget, the plan of rollouts and the receiver of webhooks.
func (c *Trial) openWide(ctx context.Context) (err error) {
	if !c.o.Wide {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	p := c.controllers[0]
	if _, err := p.budgets().SetBudget(ctx, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: allBudget, Domain: "fleet", AtOnce: plan.BudgetSlots},
	}); err != nil {
		return fmt.Errorf("set a budget: %w", err)
	}
	if _, err := baremetalv1.NewPlanServiceClient(p.conn).CreatePlan(ctx, &baremetalv1.CreatePlanRequest{
		Plan: &baremetalv1.Plan{PlanId: widePlan, Steps: []*baremetalv1.Step{{
			Name: "reboot", MaxRetries: -1, TimeoutSeconds: tryLimit,
			Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}},
		}}},
	}); err != nil {
		return fmt.Errorf("make a plan: %w", err)
	}
	if c.hooks, err = receiver.Open(); err != nil {
		return err
	}
	hook, err := p.admin().CreateWebhook(ctx, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
		WebhookId: wideHook, Url: c.hooks.URL(), EventTypes: []string{"operation.*"}, MaxConcurrency: 4,
	}})
	if err != nil {
		return fmt.Errorf("make a webhook: %w", err)
	}
	return c.hooks.Use(hook.GetSecret())
}

func (p *controllerProgram) budgets() baremetalv1.BudgetServiceClient {
	return baremetalv1.NewBudgetServiceClient(p.conn)
}

// freeSlots releases the slots of machines whose reimages have failed until ctx ends, as an administrator does who has
// looked at them.
func (r *attempt) freeSlots(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := r.c.controllers[0].budgets().ListBudgetSlots(ctx, &baremetalv1.ListBudgetSlotsRequest{})
		for _, s := range list.GetSlots() {
			ended := slices.Contains([]string{"FAILED", "CANCELED"}, s.GetOperationPhase())
			if err != nil || s.GetReleasedAt() != nil || !ended {
				continue
			}
			at := time.Now()
			if _, err := r.c.controllers[0].budgets().ReleaseBudgetSlot(ctx,
				&baremetalv1.ReleaseBudgetSlotRequest{MachineId: s.GetMachineId()}); err == nil {
				r.mu.Lock()
				r.freed = append(r.freed, check.Freed{Machine: s.GetMachineId(), At: at})
				r.mu.Unlock()
			}
		}
		program.Rest(ctx, again)
	}
}

// settleWide waits for the rollout of the run to end, and frees slots of budgets until stop is called.
func (r *attempt) settleWide(ctx context.Context) (stop func(), err error) {
	if !r.c.o.Wide {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	group, _ := task.New(ctx)
	group.Go("free slots", func(ctx context.Context) error {
		r.freeSlots(ctx)
		return nil
	})
	stop = func() {
		cancel()
		_ = group.Wait() // it returns no error
	}
	if err := r.awaitRollout(ctx); err != nil {
		stop()
		return func() {}, err
	}
	return stop, nil
}

// eventsSettle is how long a webhook's tries may take after the last fault: a request whose controller died is found
// out by its time.
const eventsSettle = 2 * time.Minute

// collectWide gathers what only wide worlds have.
func (r *attempt) collectWide(ctx context.Context, h *check.History) error {
	if !r.c.o.Wide {
		return nil
	}
	h.Header.Wide, h.Header.Slots, h.Freed = true, plan.BudgetSlots, r.freed
	h.Header.Older = r.c.runsOlder(len(r.c.controllers) - 1)
	if err := r.collectRollout(ctx, h); err != nil {
		return err
	}
	// What never comes is found by the check.
	late := program.Until(ctx, eventsSettle, "webhooks", func() bool {
		h.Told = r.c.hooks.About(h.Operations, r.begun)
		return check.AllTold(*h)
	})
	if late != nil && ctx.Err() != nil {
		return errors.Join(late, ctx.Err())
	}
	r.c.hooks.Forget()
	return nil
}
