package admin

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/cli/webhookwhy"
)

func (a commands) webhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "webhook",
		Aliases: []string{"webhooks"},
		Short:   "Tell other systems what happens: subscribe, pause, look at deliveries",
		Long: `A webhook is an HTTPS address that is told of events of machines and operations, signed
with a secret. An event that cannot be delivered is tried again for about a day; then it is dead,
and can be sent again. docs/howto/webhooks.md says what comes and what an answer does.`,
		Example: `  ingot webhook create https://hooks.example.org/failures --event operation.failed
  ingot webhook test wh-01k
  ingot webhook deliveries --state dead`,
	}
	cmd.AddCommand(a.webhookCreateCmd(), a.webhookListCmd(), a.webhookGetCmd(), a.webhookWhyCmd(), a.webhookUpdateCmd(),
		a.webhookPauseCmd(), a.webhookResumeCmd(),
		a.webhookRotateCmd(), a.webhookDeleteCmd(), a.webhookTestCmd(), a.webhookDeliveriesCmd(), a.webhookRedeliverCmd())
	return cmd
}

// eventTypes are what may be subscribed to.
var eventTypes = []string{
	"machine.*", "machine.registered", "machine.updated", "machine.phase_changed", "machine.node_state_changed",
	"machine.deleted",
	"operation.*", "operation.created", "operation.started", "operation.succeeded", "operation.failed",
	"operation.canceled",
	"rollout.*", "rollout.created", "rollout.started", "rollout.wave_ended", "rollout.gate_closed", "rollout.paused",
	"rollout.resumed",
	"rollout.succeeded", "rollout.completed_with_failures", "rollout.failed", "rollout.canceled",
	"site.*", "site.silent", "site.heard",
}

// registerWebhook makes the flags of a webhook's settings, without its address.
func (a commands) registerWebhook(cmd *cobra.Command, w *pb.Webhook) {
	f := cmd.Flags()
	f.StringSliceVar(&w.EventTypes, "event", nil,
		"type of event, or a beginning such as operation.*; may be repeated (default: all)")
	f.StringVar(&w.Filter, "filter", "",
		"only events of machines that match, as with ingot list: site=berlin,labels.env=prod")
	f.Int32Var(&w.MaxConcurrency, "max-concurrency", 0, "requests at once from one controller, 1 to 4 (default 2)")
	command.Fixed(cmd, "event", eventTypes...)
	command.Fixed(cmd, "max-concurrency", "1", "2", "3", "4")
}

func (a commands) printWebhook(w *pb.Webhook) error {
	return a.app.Print(w, func() string { return a.app.Style().Webhook(w) }, w.GetWebhookId())
}

// printSecret prints a webhook whose secret is shown this once, also to who asks for no more than its name.
func (a commands) printSecret(w *pb.Webhook) error {
	if a.app.Flags.Output == "name" && w.GetSecret() != "" {
		a.app.Note("Secret: %s", w.GetSecret())
	}
	return a.printWebhook(w)
}

func (a commands) webhookCreateCmd() *cobra.Command {
	w := &pb.Webhook{}
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Subscribe an address to events",
		Long: `Subscribe an HTTPS address. The secret that signs its events is shown now and never again:
give it to the receiver. With --name the command can be repeated and changes nothing; the repeat
shows no secret.`,
		Example: `  ingot webhook create https://hooks.example.org/all
  ingot webhook create https://hooks.example.org/failures --name failures --event operation.failed --filter site=berlin`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			w.Url = args[0]
			made, err := svc.Admin.CreateWebhook(cmd.Context(), &pb.CreateWebhookRequest{Webhook: w})
			if err != nil {
				return err
			}
			if made.GetSecret() == "" {
				a.app.Note("It was there already. Its secret is not shown again; for a new one: ingot webhook rotate %s",
					made.GetWebhookId())
			}
			return a.printSecret(made)
		}),
	}
	cmd.Flags().StringVar(&w.WebhookId, "name", "", "the webhook's id; made when absent")
	a.registerWebhook(cmd, w)
	return cmd
}

func (a commands) webhookListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Admin.ListWebhooks, (*pb.Webhook).GetWebhookId, view.Style.Webhooks).
		Command(a.app, &cobra.Command{
			Short:   "List webhooks",
			Long:    "List webhooks with what waits for them and what was given up. -o wide adds since when one fails.",
			Example: "  ingot webhook list\n  ingot webhook list -o wide",
		}, "enabled=true", "pending_deliveries desc")
}

// oneWebhook makes a command that makes one call for one webhook.
func (a commands) oneWebhook(
	cmd *cobra.Command, call func(ctx context.Context, svc *command.Services, id string) error,
) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = command.CompleteAt(a.completeWebhooks())
	cmd.RunE = a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
		return call(cmd.Context(), svc, args[0])
	})
	return cmd
}

func (a commands) webhookGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get WEBHOOK",
		Short:             "Show one webhook",
		Long:              "Show one webhook: what it takes, whether it sends and why not, and which secrets sign its events.",
		Example:           "  ingot webhook get failures",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeWebhooks()),
		RunE: command.Show(
			a.app,
			a.app.Services().Admin.GetWebhook,
			(*pb.Webhook).GetWebhookId,
			view.Style.Webhook,
		),
	}
}

// whyOf is how many of the newest deliveries an explanation is read from.
const whyOf = 50

func (a commands) webhookWhyCmd() *cobra.Command {
	return a.oneWebhook(&cobra.Command{
		Use:   "why WEBHOOK",
		Short: "Explain what keeps events from a receiver, who must act, and what you may do",
		Long: `Explain a webhook as ingot why explains a machine: what is wrong, on whom it waits
(receiver, operator, nobody), what happens next by itself and when, and what you may do. It is read
from the webhook and its newest deliveries.`,
		Example: "  ingot webhook why failures",
	}, func(ctx context.Context, svc *command.Services, id string) error {
		w, err := svc.Admin.GetWebhook(ctx, &pb.GetWebhookRequest{WebhookId: id})
		if err != nil {
			return err
		}
		newest, err := svc.Admin.ListWebhookDeliveries(ctx, &pb.ListWebhookDeliveriesRequest{WebhookId: id, PageSize: whyOf})
		if err != nil {
			return err
		}
		e := webhookwhy.Explain(w, newest.GetDeliveries(), a.app.Now())
		return a.app.Print(e, func() string { return a.app.Style().Explain(e) }, w.GetWebhookId())
	})
}

func (a commands) webhookDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete WEBHOOK",
		Short:             "Remove a webhook with its secrets and deliveries",
		Long:              "Remove a webhook with its secrets and its deliveries, dead ones too. What is under way may still arrive.",
		Example:           "  ingot webhook delete failures",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeWebhooks()),
		RunE:              command.Do(a.app, "Deleted", a.app.Services().Admin.DeleteWebhook, (*pb.Webhook).GetWebhookId),
	}
}

func (a commands) completeWebhooks() command.Completion {
	return command.CompleteList(a.app, a.app.Services().Admin.ListWebhooks, &pb.ListWebhooksRequest{},
		func(w *pb.Webhook) string {
			return w.GetWebhookId() + "\t" + w.GetState() + " " + view.Clean(w.GetUrl())
		})
}
