-- name: RecordAudit :exec
INSERT INTO audit_log (ts, actor, verb, target_id, request_id, operation_id, event_data)
VALUES (@ts, @actor, @verb, @target_id, @request_id, @operation_id, @event_data);

-- name: RecordAudits :exec
INSERT INTO audit_log (ts, actor, verb, target_id, request_id, operation_id, event_data)
SELECT unnest(@tss::timestamptz[]), unnest(@actors::text[]), unnest(@verbs::text[]), unnest(@target_ids::text[]),
       unnest(@request_ids::text[]), unnest(@operation_ids::text[]), unnest(@event_datas::jsonb[]);

-- name: LockGrantSeqs :many
SELECT agent_id, state_id, last_grant_seq, last_grant_command_id, last_grant_nonce FROM agent_states
WHERE (agent_id, state_id) IN (SELECT unnest(@agent_ids::text[]), unnest(@state_ids::text[]))
ORDER BY agent_id, state_id FOR UPDATE;

-- name: AdvanceGrantSeqs :execrows
UPDATE agent_states s SET last_grant_seq = v.seq, last_grant_command_id = v.command_id, last_grant_nonce = v.nonce
FROM (SELECT unnest(@seqs::bigint[]) AS seq, unnest(@command_ids::text[]) AS command_id, unnest(@nonces::bytea[]) AS nonce,
             unnest(@agent_ids::text[]) AS agent_id, unnest(@state_ids::text[]) AS state_id) v
WHERE s.agent_id = v.agent_id AND s.state_id = v.state_id AND s.last_grant_seq < v.seq;
