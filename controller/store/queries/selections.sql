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
