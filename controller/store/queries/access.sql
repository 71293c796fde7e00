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
