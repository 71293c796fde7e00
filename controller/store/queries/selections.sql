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

-- What depends on the fields of machines.

-- name: ShareFieldUses :exec
-- What depends on fields of machines stays as it is until the transaction ends. Triggers take the same lock alone.
SELECT pg_advisory_xact_lock_shared(7022147285);

-- name: FieldUses :many
-- The selections, the domains of budgets and the required levels. A row has a filter, or a key with or without a value.
SELECT 'role'::text AS kind, b.binding_id::text AS name, b.selection::text AS filter, ''::text AS key, ''::text AS value,
       false::boolean AS counted
FROM role_bindings b WHERE b.selection <> '' AND (b.expires_at IS NULL OR b.expires_at > @now::timestamptz)
UNION ALL
SELECT 'token', t.name, t.selection, '', '', false
FROM api_tokens t WHERE t.selection <> '' AND t.revoked_at IS NULL AND t.expires_at > @now
UNION ALL
SELECT 'approval policy', p.name, p.selection, '', '', false
FROM approval_policies p WHERE p.selection <> ''
UNION ALL
SELECT 'budget', g.name, '', g.domain, g.value, g.percent > 0 FROM budgets g
UNION ALL
SELECT 'identity level', 'site ' || s.site, '', 'site', s.site, false FROM sites s WHERE s.identity_level <> ''
UNION ALL
SELECT 'identity level', 'group ' || g.node_group, '', 'group', g.node_group, false
FROM node_groups g WHERE g.identity_level <> '';

-- name: LastMachinesOfMACs :many
-- The last machine of each of the MAC addresses that no machine has now.
SELECT m.* FROM released_macs r JOIN machines m USING (machine_id)
WHERE r.mac = ANY(CAST(@macs::text[] AS macaddr[])) ORDER BY r.mac;
