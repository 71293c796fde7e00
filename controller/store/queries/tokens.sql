-- Bearer tokens of the API.

-- name: TouchAPITokens :exec
UPDATE api_tokens_version SET version = version + 1;

-- name: APITokensVersion :one
SELECT version FROM api_tokens_version;

-- name: APITokensInForce :many
SELECT token_id, name, scope, hash, expires_at, created_by_identity FROM api_tokens WHERE revoked_at IS NULL AND expires_at > @now ORDER BY token_id LIMIT @max_rows;

-- name: CountAPITokensInForce :one
SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL AND expires_at > @now;

-- name: EndExpiredAPIToken :exec
-- Its name can be used again.
UPDATE api_tokens SET revoked_at = expires_at WHERE name = @name AND revoked_at IS NULL AND expires_at <= @now;

-- name: InsertAPIToken :exec
INSERT INTO api_tokens (token_id, name, scope, hash, created_at, created_by, created_by_identity, expires_at)
VALUES (@token_id, @name, @scope, @hash, @created_at, @created_by, @created_by_identity, @expires_at);

-- name: LockAPIToken :one
SELECT * FROM api_tokens WHERE token_id = @token_id FOR UPDATE;

-- name: RevokeAPIToken :exec
UPDATE api_tokens SET revoked_at = @now WHERE token_id = @token_id AND revoked_at IS NULL;

-- name: ListAPITokens :many
SELECT * FROM api_tokens
WHERE (@before_id::text = '' OR token_id < @before_id) AND (@all_of_them::boolean OR revoked_at IS NULL AND expires_at > @now)
ORDER BY token_id DESC LIMIT @page_size;

-- name: UsedAPITokens :exec
UPDATE api_tokens t SET last_used_at = v.at
FROM (SELECT unnest(@token_ids::text[]) AS token_id, unnest(@ats::timestamptz[]) AS at) v
WHERE t.token_id = v.token_id AND (t.last_used_at IS NULL OR t.last_used_at < v.at);

-- name: CountRefusals :exec
-- A row that was scrubbed stays empty.
UPDATE audit_log SET event_data = jsonb_set(event_data, '{count}', to_jsonb(@count::text))
WHERE audit_id = @audit_id AND event_data ? 'count';

-- name: BoundDrift :one
-- Scrubs the differences of a machine's older drift rows, and counts the rows since a time.
WITH scrubbed AS (
    UPDATE audit_log SET event_data = '{}', salt = NULL WHERE event_data <> '{}' AND audit_id IN (
        SELECT a.audit_id FROM audit_log a WHERE a.target_id = @machine_id AND a.verb = 'CONFIG_DRIFT'
        ORDER BY a.audit_id DESC LIMIT 10 OFFSET @keep::int))
SELECT count(*) FROM (SELECT 1 FROM audit_log a WHERE a.target_id = @machine_id AND a.verb = 'CONFIG_DRIFT' AND a.ts > @since LIMIT 1) newer;

-- name: PruneInventories :exec
-- The newest ones of a machine stay.
DELETE FROM inventories i WHERE i.machine_id = @machine_id AND i.reported_at < (
    SELECT n.reported_at FROM inventories n WHERE n.machine_id = @machine_id ORDER BY n.reported_at DESC LIMIT 1 OFFSET @keep::int);

-- name: ForgetDiscovered :exec
-- The machines that were not seen for the longest time go first.
DELETE FROM discovered_machines WHERE (site, mac) IN (
    SELECT d.site, d.mac FROM discovered_machines d WHERE d.site = @site ORDER BY d.last_seen_at DESC OFFSET @keep::int);

-- name: DropEndedAPITokens :execrows
-- Those that ended before a time. The audit log keeps who made and who revoked them.
DELETE FROM api_tokens WHERE token_id IN (
    SELECT t.token_id FROM api_tokens t WHERE coalesce(t.revoked_at, t.expires_at) < @before::timestamptz LIMIT @max_rows);
