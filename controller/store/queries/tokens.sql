-- Bearer tokens of the API.

-- name: TouchAPITokens :exec
UPDATE api_tokens_version SET version = version + 1;

-- name: APITokensVersion :one
SELECT version FROM api_tokens_version;

-- name: APITokensInForce :many
SELECT token_id, name, scope, coalesce(narrow_hash, hash)::bytea AS hash, expires_at, created_by_identity, selection FROM api_tokens WHERE revoked_at IS NULL AND expires_at > @now ORDER BY token_id LIMIT @max_rows;

-- name: UnrevokedAPIToken :one
-- A token that nobody has revoked, though it may have expired.
SELECT scope, created_by_identity, selection FROM api_tokens
WHERE token_id = @token_id AND (revoked_at IS NULL OR revoked_at = expires_at);

-- name: CountAPITokensInForce :one
SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL AND expires_at > @now;

-- name: EndExpiredAPIToken :exec
-- Its name can be used again.
UPDATE api_tokens SET revoked_at = expires_at WHERE name = @name AND revoked_at IS NULL AND expires_at <= @now;

-- name: InsertAPIToken :exec
INSERT INTO api_tokens (token_id, name, scope, hash, narrow_hash, selection, parent_id, created_at, created_by, created_by_identity, expires_at)
VALUES (@token_id, @name, @scope, @hash, @narrow_hash, @selection, @parent_id, @created_at, @created_by, @created_by_identity, @expires_at);

-- name: LockAPIToken :one
SELECT * FROM api_tokens WHERE token_id = @token_id FOR UPDATE;

-- name: RevokeAPITokens :many
-- A token, and those that it and its tokens have made.
WITH RECURSIVE made AS (
    SELECT t.token_id FROM api_tokens t WHERE t.token_id = @token_id
    UNION
    SELECT c.token_id FROM api_tokens c JOIN made ON c.parent_id = made.token_id
)
UPDATE api_tokens SET revoked_at = @now WHERE token_id IN (SELECT token_id FROM made) AND revoked_at IS NULL
RETURNING token_id, name;

-- name: ListAPITokens :many
SELECT * FROM api_tokens
WHERE (@before_id::text = '' OR token_id < @before_id) AND (@all_of_them::boolean OR revoked_at IS NULL AND expires_at > @now)
ORDER BY token_id DESC LIMIT @page_size;

-- name: UsedAPITokens :exec
UPDATE api_tokens t SET last_used_at = v.at
FROM (SELECT unnest(@token_ids::text[]) AS token_id, unnest(@ats::timestamptz[]) AS at) v
WHERE t.token_id = v.token_id AND (t.last_used_at IS NULL OR t.last_used_at < v.at);

-- name: CountRefusals :exec
SELECT count_refusals(@writer_id::text, @batch::bigint, @actors::text[], @addresses::text[], @methods::text[],
                      @machine_ids::text[], @counts::bigint[]);

-- name: RefusalsAreDue :one
SELECT EXISTS (SELECT 1 FROM refusal_counts WHERE minute < date_trunc('minute', clock_timestamp()));

-- name: LockRefusals :exec
-- The lock that count_refusals shares.
SELECT pg_advisory_xact_lock(716422831);

-- name: EndRefusalMinutes :one
UPDATE refusal_chain SET chained_before = greatest(chained_before, date_trunc('minute', clock_timestamp()))
RETURNING chained_before;

-- name: TakeRefusals :many
DELETE FROM refusal_counts WHERE minute < @chained_before RETURNING *;

-- name: ForgetRefusalWriters :exec
DELETE FROM refusal_writers WHERE stored_at < clock_timestamp() - interval '1 day';

-- name: DriftOf :one
-- How many differences of a machine's drifts have their data, how many of them were written since a time, and the number
-- of the newest one that is not among the @keep newest.
SELECT (SELECT count(*) FROM audit_log a WHERE a.target_id = @machine_id AND a.verb = 'CONFIG_DRIFT' AND a.event_data <> '{}') AS kept,
       (SELECT count(*) FROM audit_log a WHERE a.target_id = @machine_id AND a.verb = 'CONFIG_DRIFT' AND a.ts > @since) AS newer,
       coalesce((SELECT a.audit_id FROM audit_log a WHERE a.target_id = @machine_id AND a.verb = 'CONFIG_DRIFT'
                 ORDER BY a.audit_id DESC LIMIT 1 OFFSET @keep::int), 0)::bigint AS through;

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

-- Roles and sessions of people who sign on.

-- name: PutRoleBinding :one
-- The same role, member and selection again keeps its id.
INSERT INTO role_bindings (binding_id, role, member_kind, member, selection, created_at, created_by, expires_at)
VALUES (@binding_id, @role, @member_kind, @member, @selection, @created_at, @created_by, @expires_at)
ON CONFLICT (role, member_kind, member, selection) DO UPDATE SET expires_at = excluded.expires_at
RETURNING *;

-- name: CountRoleBindings :one
SELECT count(*) FROM role_bindings;

-- name: ListRoleBindings :many
SELECT * FROM role_bindings WHERE @before_id::text = '' OR binding_id < @before_id
ORDER BY binding_id DESC LIMIT @page_size;

-- name: RoleBindingsInForce :many
SELECT * FROM role_bindings WHERE expires_at IS NULL OR expires_at > @now::timestamptz ORDER BY binding_id;

-- name: DeleteRoleBinding :one
DELETE FROM role_bindings WHERE binding_id = @binding_id RETURNING *;

-- name: PutSignOnSession :one
INSERT INTO sign_on_sessions (session_id, subject, name, created_at, last_seen_at, expires_at)
VALUES (@session_id, @subject, @name, @now, @now, @expires_at)
ON CONFLICT (session_id) DO UPDATE SET
    last_seen_at = greatest(sign_on_sessions.last_seen_at, excluded.last_seen_at),
    expires_at = greatest(sign_on_sessions.expires_at, excluded.expires_at)
RETURNING (xmax = 0)::boolean AS made;

-- name: PutPerson :execrows
-- What an older token names changes nothing.
INSERT INTO people (identity, issuer, subject, name, groups, issued_at)
VALUES (@identity, @issuer, @subject, @name, @groups, @issued_at)
ON CONFLICT (identity) DO UPDATE SET name = excluded.name, groups = excluded.groups, issued_at = excluded.issued_at
WHERE people.issued_at < excluded.issued_at;

-- name: MakesAPITokens :one
SELECT EXISTS (SELECT 1 FROM api_tokens WHERE created_by_identity = @identity AND revoked_at IS NULL);

-- name: MakersOfAPITokens :many
SELECT * FROM people p
WHERE EXISTS (SELECT 1 FROM api_tokens t WHERE t.created_by_identity = p.identity AND t.revoked_at IS NULL AND t.expires_at > @now);

-- name: PersonOf :one
SELECT issuer, subject, groups FROM people WHERE identity = @identity;

-- name: DropPeople :execrows
-- Those that have not signed on since a time.
DELETE FROM people WHERE identity IN (SELECT p.identity FROM people p WHERE p.issued_at < @before::timestamptz LIMIT @max_rows);

-- name: ListSignOnSessions :many
SELECT * FROM sign_on_sessions
WHERE (@before_id::text = '' OR (created_at, session_id) < (@before_time::timestamptz, @before_id))
  AND (@all_of_them::boolean OR revoked_at IS NULL AND expires_at > @now::timestamptz)
ORDER BY created_at DESC, session_id DESC LIMIT @page_size;

-- name: RevokeSignOnSession :one
UPDATE sign_on_sessions SET revoked_at = coalesce(revoked_at, @now::timestamptz) WHERE session_id = @session_id RETURNING *;

-- name: RevokedSignOnSessions :many
SELECT session_id, revoked_at FROM sign_on_sessions WHERE revoked_at > @since::timestamptz;

-- name: DropEndedSignOnSessions :execrows
-- The audit log keeps who has signed on, and whose session was revoked.
DELETE FROM sign_on_sessions WHERE session_id IN (
    SELECT s.session_id FROM sign_on_sessions s
    WHERE s.expires_at < @before::timestamptz AND coalesce(s.revoked_at, s.expires_at) < @before::timestamptz LIMIT @max_rows);

-- name: SignOnProvider :one
SELECT * FROM sign_on_providers WHERE issuer = @issuer;

-- name: PutSignOnProvider :exec
INSERT INTO sign_on_providers (issuer, document, keys, fetched_at) VALUES (@issuer, @document, @keys, @fetched_at)
ON CONFLICT (issuer) DO UPDATE SET document = excluded.document, keys = excluded.keys, fetched_at = excluded.fetched_at;

-- name: PutConsoleSignOut :exec
INSERT INTO console_sign_outs (session_id, expires_at) VALUES (@session_id, @expires_at) ON CONFLICT DO NOTHING;

-- name: ConsoleSignedOut :one
SELECT EXISTS (SELECT 1 FROM console_sign_outs WHERE session_id = @session_id);

-- name: DropConsoleSignOuts :execrows
DELETE FROM console_sign_outs WHERE session_id IN (
    SELECT c.session_id FROM console_sign_outs c WHERE c.expires_at < @before::timestamptz LIMIT @max_rows);
