package controller

import (
	"github.com/ingot-metal/ingot/controller/engine/delivery"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
)

// webhooks are the engine's terms for sending events to other systems.
func (c *Controller) webhooks() (*delivery.Config, error) {
	w := c.cfg.Webhooks
	roots, err := w.Roots()
	if err != nil {
		return nil, err
	}
	return &delivery.Config{
		Sender: webhook.NewSender(webhook.SenderConfig{
			Policy: c.webhookPolicy(), Timeout: w.Timeout.Duration, Roots: roots, UserAgent: "ingot/" + c.version,
			Clock: c.clock,
		}),
		Secrets: c.secrets, Source: w.Source,
		Schedule: webhook.Schedule{
			MaxAttempts: w.MaxAttempts, Base: w.RetryBase.Duration, Cap: w.RetryCap.Duration,
			PauseAfterEvents: w.PauseAfterEvents, PauseAfter: w.PauseAfter.Duration,
		},
		Limits: webhookstore.WebhookLimits{KeepDelivered: w.KeepDelivered.Duration, KeepDead: w.KeepDead.Duration},
	}, nil
}

func (c *Controller) webhookPolicy() webhook.Policy {
	w := c.cfg.Webhooks
	return webhook.Policy{AllowLoopback: w.AllowLoopback, AllowLinkLocal: w.AllowLinkLocal, DenyPrivate: !w.AllowPrivate}
}
