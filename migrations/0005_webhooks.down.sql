DROP TRIGGER machines_webhooks ON machines;
DROP FUNCTION webhook_note_machine();
DROP TABLE webhook_deliveries, webhook_outbox, webhook_feed, webhook_secrets, webhooks;
