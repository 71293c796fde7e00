package admin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) webhookTestCmd() *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a ping and say what came of it",
		Long: `Send an event of type ping, whatever the webhook subscribes to, and wait for what comes of
it: exit code 0 where the receiver took it, 5 where it did not. A ping is tried once. A paused
webhook can be tested before it is resumed.`,
		Example: "  ingot webhook test failures\n  ingot webhook test failures --no-wait",
	}
	a.oneWebhook(cmd, func(ctx context.Context, svc *command.Services, id string) error {
		d, err := svc.Admin.TestWebhook(ctx, &pb.TestWebhookRequest{WebhookId: id})
		if err == nil && !noWait {
			d, err = a.ended(ctx, svc, d)
		}
		if err != nil {
			return err
		}
		if err := a.app.Print(d, func() string { return a.app.Style().WebhookDelivery(d) }, d.GetDeliveryId()); err != nil {
			return err
		}
		if d.GetState() == "dead" {
			return &command.ExitError{Code: command.ExitFailed}
		}
		return nil
	})
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return as soon as it is queued")
	return cmd
}

// ended waits for the end of a delivery.
func (a commands) ended(
	ctx context.Context,
	svc *command.Services,
	d *pb.WebhookDelivery,
) (*pb.WebhookDelivery, error) {
	for d.GetState() == "pending" {
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-a.app.Config.Clock.After(command.PollEvery):
		}
		r, err := svc.Admin.ListWebhookDeliveries(ctx, &pb.ListWebhookDeliveriesRequest{DeliveryId: d.GetDeliveryId()})
		if err != nil {
			return d, err
		}
		if len(r.GetDeliveries()) == 0 {
			return d, &command.ExitError{
				Code: command.ExitNotFound,
				Err:  errors.New("the delivery is gone: its webhook was deleted"),
			}
		}
		d = r.GetDeliveries()[0]
	}
	return d, nil
}

func (a commands) webhookDeliveriesCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Admin.ListWebhookDeliveries,
		(*pb.WebhookDelivery).GetDeliveryId, view.Style.WebhookDeliveries)
	l.Prepare = func(args []string) error {
		l.Request.WebhookId = strings.Join(args, "")
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "Show what was sent, is to be sent, or was given up",
		Long: `Show the events that a webhook, or all of them, was sent or is to be sent, newest first.
Those with state dead were given up: ingot webhook redeliver sends one again. Delivered ones are
kept for a week, dead ones for 30 days, if the controller's configuration does not say otherwise.`,
		Example: `  ingot webhook deliveries failures
  ingot webhook deliveries --state dead -o wide
  ingot webhook deliveries --delivery dlv-01k -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeWebhooks()),
	}, "", "")
	f := cmd.Flags()
	f.StringVar(&l.Request.State, "state", "", "pending, delivered or dead")
	f.StringVar(&l.Request.DeliveryId, "delivery", "", "only this one")
	f.IntVar(&l.Limit, "limit", 100, "at most so many, newest first; 0 is all")
	command.Fixed(cmd, "state", "pending", "delivered", "dead")
	a.app.Must(cmd.RegisterFlagCompletionFunc("delivery", a.completeDeliveries("")))
	return cmd
}

func (a commands) webhookRedeliverCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "redeliver DELIVERY...",
		Short: "Send events again",
		Long: `Send events once more, each under the id that it had, so that a receiver knows a repeat.
Their tries begin anew. One that is pending stays as it is. Where one cannot be sent again the
others are; the exit code is that of the first failure.`,
		Example: `  ingot webhook redeliver dlv-01k
  ingot webhook deliveries failures --state dead --limit 0 -o name | xargs ingot webhook redeliver`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeDeliveries("dead"),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			var sent []*pb.WebhookDelivery
			var first error
			for _, id := range args {
				d, err := svc.Admin.RedeliverWebhook(cmd.Context(), &pb.RedeliverWebhookRequest{DeliveryId: id})
				switch {
				case err == nil:
					sent = append(sent, d)
					continue
				case first == nil:
					first = err
				default:
					a.app.Note("%s: %s", id, command.ErrorText(err))
				}
				if apiclient.Transient(err) || cmd.Context().Err() != nil {
					break // nor would the others arrive
				}
			}
			if len(sent) == 0 {
				return first
			}
			if err := command.ListOf(svc.Admin.ListWebhookDeliveries, (*pb.WebhookDelivery).GetDeliveryId,
				view.Style.WebhookDeliveries).Print(a.app, sent); err != nil {
				return err
			}
			return first
		}),
	}
}

func (a commands) completeDeliveries(state string) command.Completion {
	return command.CompleteList(
		a.app,
		a.app.Services().Admin.ListWebhookDeliveries,
		&pb.ListWebhookDeliveriesRequest{PageSize: 100, State: state},
		func(d *pb.WebhookDelivery) string {
			return d.GetDeliveryId() + "\t" + d.GetEventType() + " " + d.GetSubject() + " " + d.GetState()
		},
	)
}
