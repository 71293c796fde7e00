-- name: InsertWebhook :execrows
INSERT INTO webhooks (webhook_id, url, event_types, filter, wants_machines, max_concurrency, state, state_changed_at, created_at,
                      updated_at)
VALUES (@webhook_id, @url, @event_types, sqlc.arg(filter), @wants_machines, @max_concurrency, 'active', @created_at, @created_at, @created_at)
ON CONFLICT (webhook_id) DO NOTHING;

-- name: LockWebhook :one
SELECT * FROM webhooks WHERE webhook_id = @webhook_id FOR UPDATE;

-- name: ListWebhooks :many
SELECT sqlc.embed(w),
       (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.webhook_id AND d.state = 'pending') AS pending,
       (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.webhook_id AND d.state = 'dead') AS dead
FROM webhooks w
WHERE w.webhook_id > @after_id AND (@webhook_id::text = '' OR w.webhook_id = @webhook_id)
ORDER BY w.webhook_id LIMIT @page_size;

-- name: WebhookQueues :many
SELECT webhook_id, max_concurrency, state = 'active' AS active FROM webhooks ORDER BY webhook_id;

-- name: ActiveWebhooks :many
SELECT * FROM webhooks WHERE state = 'active' ORDER BY webhook_id;

-- name: UpdateWebhook :exec
UPDATE webhooks SET url = @url, event_types = @event_types, filter = @filter, wants_machines = @wants_machines,
    max_concurrency = @max_concurrency, updated_at = @now, version = version + 1
WHERE webhook_id = @webhook_id;

-- name: SetWebhookState :exec
UPDATE webhooks SET state = @state, state_reason = @state_reason, state_changed_at = @now, updated_at = @now, version = version + 1,
    failing_since = CASE WHEN @state::text = 'active' THEN NULL ELSE failing_since END,
    failed_events = CASE WHEN @state::text = 'active' THEN 0 ELSE failed_events END,
    hold_until = NULL
WHERE webhook_id = @webhook_id;

-- name: DeleteWebhook :exec
DELETE FROM webhooks WHERE webhook_id = @webhook_id;

-- name: InsertWebhookSecret :exec
INSERT INTO webhook_secrets (webhook_id, secret_id, sealed, created_at) VALUES (@webhook_id, @secret_id, @sealed, @now);

-- name: ExpireWebhookSecrets :exec
UPDATE webhook_secrets SET expires_at = least(expires_at, @expires_at::timestamptz)
WHERE webhook_id = @webhook_id AND secret_id <> @except_id;

-- name: DropExpiredSecrets :exec
DELETE FROM webhook_secrets WHERE expires_at <= @now;

-- name: SecretsOfWebhooks :many
SELECT * FROM webhook_secrets WHERE webhook_id = ANY(@webhook_ids::text[]) AND (expires_at IS NULL OR expires_at > @now)
ORDER BY webhook_id, created_at DESC, secret_id DESC;

-- name: HoldDeliveries :exec
UPDATE webhook_deliveries SET next_at = NULL WHERE webhook_id = @webhook_id AND state = 'pending';

-- name: ReleaseDeliveries :exec
-- A new round: the jobs of the one before ended when the webhook was no longer active.
UPDATE webhook_deliveries SET next_at = @now, round = round + 1 WHERE webhook_id = @webhook_id AND state = 'pending';

-- name: BuryDeliveries :exec
UPDATE webhook_deliveries SET state = 'dead', next_at = NULL, finished_at = @now, last_error = @reason
WHERE webhook_id = @webhook_id AND state = 'pending';

-- name: LockWebhookFeed :one
-- Whoever finds it locked need not wait: the work is being done.
SELECT after_xid::text AS after_xid, after_operation, after_seq FROM webhook_feed FOR UPDATE SKIP LOCKED;

-- name: MoveWebhookFeed :exec
UPDATE webhook_feed SET after_xid = CAST(@after_xid::text AS xid8), after_operation = @after_operation, after_seq = @after_seq;

-- name: HoldWebhookFeed :one
-- Waits for whoever is turning events into deliveries, and keeps them out until the transaction has ended.
SELECT after_seq FROM webhook_feed FOR UPDATE;

-- name: StartWebhookFeed :exec
-- To what is not decided yet: whatever commits from here on comes after it.
UPDATE webhook_feed SET after_xid = pg_snapshot_xmin(pg_current_snapshot()), after_operation = '', after_seq = 0;

-- name: EmptyOutbox :exec
DELETE FROM webhook_outbox;

-- name: EmptyRolloutOutbox :exec
DELETE FROM webhook_rollouts;

-- name: SkipWebhookFeed :exec
-- To after all that this transaction and those before it have written.
UPDATE webhook_feed SET after_xid = pg_current_xact_id(), after_operation = '~', after_seq = 0;

-- name: OperationEventsForWebhooks :many
-- In one statement: rows and their bound, as in EventFeed. Only the kinds that are events to the outside are read.
SELECT * FROM operation_events
WHERE (change_xid, operation_id, seq) > (CAST(@after_xid::text AS xid8), @after_operation::text, @after_seq::bigint)
  AND change_xid < pg_snapshot_xmin(pg_current_snapshot())
  AND kind = ANY(@kinds::text[])
ORDER BY change_xid, operation_id, seq LIMIT @page_size;

-- name: TakeMachineChanges :many
DELETE FROM webhook_outbox
WHERE change_id IN (SELECT o.change_id FROM webhook_outbox o ORDER BY o.change_id LIMIT @page_size FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: TakeRolloutChanges :many
DELETE FROM webhook_rollouts
WHERE change_id IN (SELECT o.change_id FROM webhook_rollouts o ORDER BY o.change_id LIMIT @page_size FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: MachinesByIDs :many
SELECT * FROM machines WHERE machine_id = ANY(@machine_ids::text[]);

-- name: InsertDeliveries :exec
INSERT INTO webhook_deliveries (delivery_id, webhook_id, event_id, event_type, subject, machine_id, body, state, next_at, created_at)
SELECT unnest(@delivery_ids::text[]), unnest(@webhook_ids::text[]), unnest(@event_ids::text[]), unnest(@event_types::text[]),
       unnest(@subjects::text[]), unnest(@machine_ids::text[]), unnest(@bodies::bytea[]), 'pending', @created_at::timestamptz, @created_at::timestamptz;

-- name: LoadDelivery :one
SELECT sqlc.embed(d), sqlc.embed(w) FROM webhook_deliveries d JOIN webhooks w ON w.webhook_id = d.webhook_id
WHERE d.delivery_id = @delivery_id;

-- name: LockDelivery :one
SELECT * FROM webhook_deliveries WHERE delivery_id = @delivery_id FOR UPDATE;

-- name: ParkDelivery :exec
UPDATE webhook_deliveries SET next_at = NULL WHERE delivery_id = @delivery_id AND state = 'pending' AND round = @round;

-- name: RecordDelivery :execrows
UPDATE webhook_deliveries
SET state = @state, attempts = @attempts, last_status = @last_status, last_error = @last_error, last_attempt_at = @now,
    next_at = @next_at, finished_at = @finished_at
WHERE delivery_id = @delivery_id AND state = 'pending' AND round = @round;

-- name: RestartDelivery :exec
UPDATE webhook_deliveries
SET state = 'pending', round = round + 1, attempts = 0, finished_at = NULL, next_at = @next_at
WHERE delivery_id = @delivery_id;

-- name: WebhookWorks :exec
UPDATE webhooks SET failing_since = NULL, failed_events = 0 WHERE webhook_id = @webhook_id;

-- name: WebhookFails :one
UPDATE webhooks
SET failing_since = coalesce(failing_since, @now), failed_events = failed_events + @given_up::int,
    hold_until = coalesce(sqlc.narg(hold_until), hold_until)
WHERE webhook_id = @webhook_id
RETURNING *;

-- name: ClaimDueDeliveries :many
-- Pending ones that nobody has tried for long after their time: their job is lost, or waits in a long queue, where the
-- same key keeps it from being queued twice.
UPDATE webhook_deliveries SET next_at = @push_to
WHERE delivery_id IN (
    SELECT d.delivery_id FROM webhook_deliveries d
    WHERE d.state = 'pending' AND d.next_at <= @overdue
    ORDER BY d.next_at LIMIT @max_rows FOR UPDATE SKIP LOCKED)
RETURNING delivery_id, webhook_id, round;

-- name: ListDeliveries :many
SELECT delivery_id, webhook_id, event_id, event_type, subject, machine_id, state, attempts, last_status, last_error,
       last_attempt_at, next_at, created_at, finished_at
FROM webhook_deliveries
WHERE (@webhook_id::text = '' OR webhook_id = @webhook_id) AND (@state::text = '' OR state = @state)
  AND (@delivery_id::text = '' OR delivery_id = @delivery_id)
  AND (@before_id::text = '' OR (created_at, delivery_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, delivery_id DESC LIMIT @page_size;

-- name: PruneDeliveries :execrows
DELETE FROM webhook_deliveries
WHERE delivery_id IN (SELECT d.delivery_id FROM webhook_deliveries d
                      WHERE d.state = 'delivered' AND d.finished_at < @delivered_before::timestamptz
                         OR d.state = 'dead' AND d.finished_at < @dead_before::timestamptz
                      ORDER BY d.finished_at LIMIT @max_rows);

-- name: OverfullWebhooks :many
SELECT w.webhook_id FROM webhooks w
WHERE w.state = 'active'
  AND (SELECT count(*) FROM (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = w.webhook_id AND d.state = 'pending'
                             LIMIT @max_pending::int) n) >= @max_pending::int;

-- name: WebhookBacklog :one
SELECT count(*) AS waiting, coalesce(min(created_at), clock_timestamp())::timestamptz AS oldest FROM webhook_deliveries WHERE state = 'pending';
