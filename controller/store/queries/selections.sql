-- name: InsertSelection :exec
INSERT INTO selections (selection_id, request_id, filter, machine_ids, digest, created_by, created_at, expires_at)
VALUES (@selection_id, @request_id, @filter, @machine_ids, @digest, @created_by, @now, @expires_at);

-- name: GetSelection :one
SELECT * FROM selections WHERE selection_id = @selection_id AND expires_at > @now;

-- name: GetSelectionByRequest :one
SELECT * FROM selections WHERE request_id = @request_id;

-- name: DeleteExpiredSelections :exec
DELETE FROM selections WHERE expires_at <= @now;

-- name: KnownMachines :many
-- Those of the machines that are in the inventory.
SELECT machine_id FROM machines WHERE machine_id = ANY(@machine_ids::text[]) AND deleted_at IS NULL;

-- name: LockViews :exec
-- One change at a time, so that the bounds hold. The lock ends with the transaction.
SELECT pg_advisory_xact_lock(7022147284);

-- name: FindView :one
SELECT * FROM saved_views WHERE name = @name;

-- name: CountViews :one
SELECT count(*) AS of_all, count(*) FILTER (WHERE created_by_identity = @identity) AS of_owner FROM saved_views;

-- name: PutView :one
-- Whoever changes it, a view keeps its owner.
INSERT INTO saved_views (name, title, description, filter, order_by, columns, group_by, shared, created_by,
    created_by_identity, created_at, updated_at)
VALUES (@name, @title, @description, @filter, @order_by, @columns, @group_by, @shared, @actor, @identity, @now, @now)
ON CONFLICT (name) DO UPDATE SET
    title = excluded.title, description = excluded.description, filter = excluded.filter, order_by = excluded.order_by,
    columns = excluded.columns, group_by = excluded.group_by, shared = excluded.shared, updated_at = excluded.updated_at,
    version = saved_views.version + 1
RETURNING *;

-- name: ViewsAfter :many
-- Those that are shared, and those of an owner.
SELECT * FROM saved_views WHERE name > @after_name AND (shared OR created_by_identity = @identity)
ORDER BY name LIMIT @page_size;

-- name: DeleteView :exec
DELETE FROM saved_views WHERE name = @name;
