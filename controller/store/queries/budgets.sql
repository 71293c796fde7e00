-- name: SetBudget :one
INSERT INTO budgets (name, domain, value, at_once, percent, per_hour, per_day, harm, updated_at)
VALUES (@name, @domain, @value, @at_once, @percent, @per_hour, @per_day, @harm, @now)
ON CONFLICT (name) DO UPDATE
SET harm = excluded.harm, domain = excluded.domain, value = excluded.value, at_once = excluded.at_once, percent = excluded.percent,
    per_hour = excluded.per_hour, per_day = excluded.per_day, updated_at = excluded.updated_at,
    version = budgets.version + 1
RETURNING *;

-- name: ListBudgets :many
SELECT * FROM budgets ORDER BY name;

-- name: BudgetsAfter :many
SELECT * FROM budgets WHERE name > @after_name ORDER BY name LIMIT @page_size;

-- name: DeleteBudget :one
DELETE FROM budgets WHERE name = @name RETURNING *;

-- name: LockBudgets :one
-- One controller at a time admits. The lock ends with the transaction.
SELECT pg_try_advisory_xact_lock(7022147283);

-- name: WaitForBudgets :exec
-- The same, after the controller that admits.
SELECT pg_advisory_xact_lock(7022147283);

-- name: WaitingForSlots :many
-- Those behind a place in the order of creation, with the harms for which they need a slot. A machine that holds a slot of a
-- harm needs no other of it.
SELECT o.operation_id, o.created_at, m.site, m.labels, coalesce(m.spec ->> 'rack', '')::text AS rack,
       n.destroys::boolean AS destroys, n.interrupts::boolean AS interrupts,
       o.request_site, o.request_labels, o.request_rack
FROM operations o JOIN machines m ON m.machine_id = o.target_id CROSS JOIN LATERAL (
    SELECT o.destructive AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
               AND h.released_at IS NULL AND h.harm = 'DESTROYS') AS destroys,
           o.interrupts AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
               AND h.released_at IS NULL AND h.harm = 'INTERRUPTS') AS interrupts) n
WHERE (o.destructive OR o.interrupts) AND o.phase = 'PENDING'
  AND (o.created_at, o.operation_id) > (@after_created::timestamptz, @after_id::text)
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.operation_id = o.operation_id)
  AND (n.destroys OR n.interrupts)
  -- A rollout that is paused or stopped touches nothing more.
  AND NOT EXISTS (SELECT 1 FROM rollout_machines x JOIN rollouts r USING (rollout_id)
                  WHERE x.operation_id = o.operation_id AND r.state <> 'RUNNING')
ORDER BY o.created_at, o.operation_id
LIMIT @max_rows;

-- name: WaitingWithSlots :many
-- Operations that wait and need no room: their machines hold the slots that they need, which other operations have left
-- behind, or no budget limits their harm any more.
SELECT o.operation_id FROM operations o
WHERE (o.destructive OR o.interrupts) AND o.phase = 'PENDING'
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.operation_id = o.operation_id)
  AND (NOT o.destructive OR EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
       AND h.released_at IS NULL AND h.harm = 'DESTROYS') OR NOT EXISTS (SELECT 1 FROM budgets b WHERE b.harm = 'DESTROYS'))
  AND (NOT o.interrupts OR EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
       AND h.released_at IS NULL AND h.harm = 'INTERRUPTS') OR NOT EXISTS (SELECT 1 FROM budgets b WHERE b.harm = 'INTERRUPTS'))
  AND NOT EXISTS (SELECT 1 FROM rollout_machines x JOIN rollouts r USING (rollout_id)
                  WHERE x.operation_id = o.operation_id AND r.state <> 'RUNNING')
ORDER BY o.created_at, o.operation_id;

-- name: PlaceOfWaiting :one
SELECT m.site, m.labels, coalesce(m.spec ->> 'rack', '')::text AS rack, n.destroys::boolean AS destroys,
       n.interrupts::boolean AS interrupts, o.request_site, o.request_labels, o.request_rack
FROM operations o JOIN machines m ON m.machine_id = o.target_id CROSS JOIN LATERAL (
    SELECT o.destructive AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
               AND h.released_at IS NULL AND h.harm = 'DESTROYS') AS destroys,
           o.interrupts AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id
               AND h.released_at IS NULL AND h.harm = 'INTERRUPTS') AS interrupts) n
WHERE o.operation_id = @operation_id AND o.phase = 'PENDING' AND (n.destroys OR n.interrupts);

-- name: SlotsThatCount :many
-- Where the machine stood when the slot was taken, when its operation was asked for, and where it stands now. A machine that
-- has left the inventory is out of no service any more.
SELECT s.site, s.labels, s.rack, s.taken_at, (s.released_at IS NULL)::boolean AS held, s.harm, o.request_site, o.request_labels,
       o.request_rack, m.site AS site_now, m.labels AS labels_now, coalesce(m.spec ->> 'rack', '')::text AS rack_now
FROM budget_slots s JOIN operations o USING (operation_id) JOIN machines m ON m.machine_id = s.machine_id
WHERE (s.released_at IS NULL OR s.taken_at > @since)
  AND (s.harm = 'DESTROYS' OR m.deleted_at IS NULL AND m.node_state NOT IN ('retired', 'removing', 'deleted'))
ORDER BY s.taken_at;

-- name: SlotOf :one
-- Whether the operation holds the slots of its harms, and whether it needs to be admitted to get one.
SELECT (NOT EXISTS (SELECT 1 FROM unnest(@harms::text[]) AS n (harm) WHERE NOT EXISTS (
           SELECT 1 FROM budget_slots s WHERE s.operation_id = @operation_id AND s.released_at IS NULL AND s.harm = n.harm)))::boolean AS held,
       EXISTS (SELECT 1 FROM unnest(@harms::text[]) AS n (harm)
           WHERE (EXISTS (SELECT 1 FROM budgets b WHERE b.harm = n.harm)
                  OR EXISTS (SELECT 1 FROM rollout_machines x JOIN rollouts r USING (rollout_id)
                             WHERE x.operation_id = @operation_id AND r.state <> 'RUNNING'))
             AND NOT EXISTS (
               SELECT 1 FROM budget_slots s WHERE s.machine_id = @machine_id AND s.released_at IS NULL AND s.harm = n.harm))::boolean AS limited;

-- name: LockWaiting :many
-- Those of the operations that still wait, locked, so that none ends before its slot is there to be given back. One that
-- is being decided on is left for the next time.
SELECT operation_id FROM operations
WHERE operation_id = ANY(@operation_ids::text[]) AND phase = 'PENDING'
ORDER BY operation_id FOR UPDATE SKIP LOCKED;

-- name: TakeOverSlots :exec
-- What the machines of these operations hold goes to them, as old as it is: the machine was counted already.
UPDATE budget_slots s SET operation_id = o.operation_id
FROM operations o
WHERE o.operation_id = ANY(@operation_ids::text[]) AND s.machine_id = o.target_id AND s.released_at IS NULL
  AND (s.harm = 'DESTROYS' AND o.destructive OR s.harm = 'INTERRUPTS' AND o.interrupts);

-- name: TakeSlots :exec
INSERT INTO budget_slots (operation_id, machine_id, site, labels, rack, harm, taken_at)
SELECT o.operation_id, m.machine_id, m.site, m.labels, m.spec ->> 'rack', h.harm, @now
FROM operations o JOIN machines m ON m.machine_id = o.target_id
JOIN (VALUES ('DESTROYS'), ('INTERRUPTS')) AS h (harm)
    ON h.harm = 'DESTROYS' AND o.destructive OR h.harm = 'INTERRUPTS' AND o.interrupts
WHERE o.operation_id = ANY(@operation_ids::text[]) AND o.phase IN ('PENDING', 'RUNNING')
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.machine_id = m.machine_id AND s.released_at IS NULL AND s.harm = h.harm)
ON CONFLICT DO NOTHING;

-- name: TakeSlotOfMachine :exec
-- For work that destroys, and begins when the operation has ended.
INSERT INTO budget_slots (operation_id, machine_id, site, labels, rack, harm, taken_at)
SELECT @operation_id, m.machine_id, m.site, m.labels, m.spec ->> 'rack', 'DESTROYS', @now FROM machines m
WHERE m.machine_id = @machine_id
ON CONFLICT DO NOTHING;

-- name: ReleaseSlotOfMachine :execrows
UPDATE budget_slots b SET released_at = @now
WHERE b.machine_id = @machine_id AND b.released_at IS NULL AND b.harm = ANY(@harms::text[]);

-- name: HeldInterruptions :many
-- Machines without work, in phase READY, that still hold the slot of an interruption which has ended.
SELECT sqlc.embed(m) FROM budget_slots s JOIN operations o USING (operation_id) JOIN machines m ON m.machine_id = s.machine_id
WHERE s.released_at IS NULL AND s.harm = 'INTERRUPTS' AND o.finished_at IS NOT NULL AND m.phase = 'READY'
  AND m.current_operation_id IS NULL;

-- name: ReleaseSlotsLeftBehind :exec
-- The slots of a machine whose operations have ended.
UPDATE budget_slots b SET released_at = @now
WHERE b.machine_id = @machine_id AND b.released_at IS NULL
  AND EXISTS (SELECT 1 FROM operations o WHERE o.operation_id = b.operation_id AND o.finished_at IS NOT NULL);

-- name: ReleaseInterruptions :exec
UPDATE budget_slots s SET released_at = @now
WHERE s.machine_id = ANY(@machine_ids::text[]) AND s.released_at IS NULL AND s.harm = 'INTERRUPTS'
  AND EXISTS (SELECT 1 FROM operations o WHERE o.operation_id = s.operation_id AND o.finished_at IS NOT NULL);

-- name: ReleaseSlotIfUntouched :exec
-- An operation that was never granted a command has destroyed nothing. A slot that it has taken over is as old as the
-- operation that left it behind, and stays where that one was granted a command. Whether a machine is in service again does
-- not follow: the slot of an interruption stays until it is.
UPDATE budget_slots b SET released_at = @now
WHERE b.operation_id = @operation_id AND b.released_at IS NULL AND b.harm = 'DESTROYS'
  AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.operation_id = @operation_id AND c.granted_at IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.target_id = b.machine_id AND c.granted_at >= b.taken_at);

-- name: ListSlots :many
SELECT s.operation_id, s.machine_id, s.taken_at, s.released_at, s.harm, o.phase FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.released_at IS NULL AND (s.taken_at, s.operation_id) > (@after_taken::timestamptz, @after_id::text)
ORDER BY s.taken_at, s.operation_id LIMIT @page_size;

-- name: SlotsLeftBehind :many
-- The machines whose operation has ended without giving its slot back, the longest held first.
SELECT DISTINCT ON (s.taken_at, s.machine_id) s.machine_id FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.released_at IS NULL AND o.finished_at IS NOT NULL AND (s.harm = 'DESTROYS' OR o.phase <> 'SUCCEEDED')
ORDER BY s.taken_at, s.machine_id LIMIT @page_size;

-- name: SlotOfMachine :one
SELECT s.operation_id, s.machine_id, s.taken_at, s.released_at, s.harm, o.phase FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.machine_id = @machine_id AND s.released_at IS NULL AND (@harm::text = '' OR s.harm = @harm)
ORDER BY s.harm LIMIT 1;

-- name: Freeze :exec
UPDATE cluster_state SET frozen_since = @now WHERE frozen_since IS NULL;

-- name: CountWaitingForBudget :one
SELECT count(*) FROM operations WHERE (destructive OR interrupts) AND phase = 'PENDING' AND wait_reason = 'WAITING_FOR_BUDGET';
