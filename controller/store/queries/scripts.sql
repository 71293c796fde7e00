-- name: GetScript :one
SELECT * FROM scripts WHERE script_ref = @script_ref;

-- name: HoldScript :one
-- For whoever is about to start work with the script: it is not removed before the transaction has ended.
SELECT * FROM scripts WHERE script_ref = @script_ref FOR SHARE;

-- name: LockScript :one
SELECT * FROM scripts WHERE script_ref = @script_ref FOR UPDATE;

-- name: InsertScript :execrows
INSERT INTO scripts (script_ref, sha256, size_bytes, interpreter, destructive, created_at)
VALUES (@script_ref, @sha256, @size_bytes, @interpreter, @destructive, @now)
ON CONFLICT (script_ref) DO NOTHING;

-- name: DeleteScript :exec
DELETE FROM scripts WHERE script_ref = @script_ref;

-- name: ListScripts :many
SELECT * FROM scripts WHERE script_ref > @after_ref ORDER BY script_ref LIMIT @page_size;

-- name: ScriptStepsUnderWay :many
-- The script's name is inside the step.
SELECT s.operation_id, s.spec FROM operation_steps s JOIN operations o ON o.operation_id = s.operation_id
WHERE o.phase IN ('PENDING', 'RUNNING') AND s.kind = 'ssh';

-- name: GetSSHCredentials :one
SELECT * FROM ssh_credentials WHERE credentials_ref = @credentials_ref;

-- name: LockSSHCredentials :one
SELECT * FROM ssh_credentials WHERE credentials_ref = @credentials_ref FOR UPDATE;

-- name: PutSSHCredentials :one
INSERT INTO ssh_credentials (credentials_ref, sealed, updated_at) VALUES (@credentials_ref, @sealed, @now)
ON CONFLICT (credentials_ref) DO UPDATE
SET sealed = excluded.sealed, version = ssh_credentials.version + 1, updated_at = excluded.updated_at
RETURNING *;

-- name: ListSSHCredentials :many
SELECT * FROM ssh_credentials WHERE credentials_ref > @after_ref ORDER BY credentials_ref LIMIT @page_size;

-- name: DeleteSSHCredentials :exec
DELETE FROM ssh_credentials WHERE credentials_ref = @credentials_ref;

-- name: MachineWithSSHCredentials :one
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND spec ->> 'ssh_credentials_ref' = @credentials_ref::text ORDER BY machine_id LIMIT 1;

-- name: SSHCredentialsRefOfMachine :one
-- Only of a machine of the site.
SELECT coalesce(spec ->> 'ssh_credentials_ref', '')::text FROM machines
WHERE machine_id = @machine_id AND site = @site AND deleted_at IS NULL;
