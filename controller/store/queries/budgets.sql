-- name: SetBudget :one
INSERT INTO budgets (name, domain, value, at_once, percent, per_hour, per_day, updated_at)
VALUES (@name, @domain, @value, @at_once, @percent, @per_hour, @per_day, @now)
ON CONFLICT (name) DO UPDATE
SET domain = excluded.domain, value = excluded.value, at_once = excluded.at_once, percent = excluded.percent,
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

-- name: WaitingForSlots :many
-- Those behind a place in the order of creation. A machine that holds a slot needs no other.
SELECT o.operation_id, o.created_at, m.site, m.labels
FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.destructive AND o.phase = 'PENDING' AND (o.created_at, o.operation_id) > (@after_created::timestamptz, @after_id::text)
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.operation_id = o.operation_id)
  AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id AND h.released_at IS NULL)
  -- A rollout that is paused or stopped touches nothing more.
  AND NOT EXISTS (SELECT 1 FROM rollout_machines x JOIN rollouts r USING (rollout_id)
                  WHERE x.operation_id = o.operation_id AND r.state <> 'RUNNING')
ORDER BY o.created_at, o.operation_id
LIMIT @max_rows;

-- name: WaitingWithSlots :many
-- Operations that wait, on machines whose slot another operation has left behind.
SELECT o.operation_id FROM budget_slots h JOIN operations o ON o.target_id = h.machine_id
WHERE h.released_at IS NULL AND o.destructive AND o.phase = 'PENDING'
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.operation_id = o.operation_id)
  AND NOT EXISTS (SELECT 1 FROM rollout_machines x JOIN rollouts r USING (rollout_id)
                  WHERE x.operation_id = o.operation_id AND r.state <> 'RUNNING')
ORDER BY o.created_at, o.operation_id;

-- name: PlaceOfWaiting :one
SELECT m.site, m.labels FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.operation_id = @operation_id AND o.phase = 'PENDING'
  AND NOT EXISTS (SELECT 1 FROM budget_slots h WHERE h.machine_id = o.target_id AND h.released_at IS NULL);

-- name: SlotsThatCount :many
SELECT site, labels, taken_at, (released_at IS NULL)::boolean AS held FROM budget_slots
WHERE released_at IS NULL OR taken_at > @since
ORDER BY taken_at;

-- name: SlotOf :one
-- Whether the operation holds a slot, and whether it needs to be admitted to get one.
SELECT EXISTS (SELECT 1 FROM budget_slots s WHERE s.operation_id = @operation_id AND s.released_at IS NULL)::boolean AS held,
       (EXISTS (SELECT 1 FROM budgets)
         AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.machine_id = @machine_id AND s.released_at IS NULL))::boolean AS limited;

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
WHERE o.operation_id = ANY(@operation_ids::text[]) AND s.machine_id = o.target_id AND s.released_at IS NULL;

-- name: TakeSlots :exec
INSERT INTO budget_slots (operation_id, machine_id, site, labels, taken_at)
SELECT o.operation_id, m.machine_id, m.site, m.labels, @now
FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.operation_id = ANY(@operation_ids::text[]) AND o.phase IN ('PENDING', 'RUNNING')
  AND NOT EXISTS (SELECT 1 FROM budget_slots s WHERE s.machine_id = m.machine_id AND s.released_at IS NULL)
ON CONFLICT DO NOTHING;

-- name: ReleaseSlotOfMachine :execrows
UPDATE budget_slots b SET released_at = @now WHERE b.machine_id = @machine_id AND b.released_at IS NULL;

-- name: ReleaseSlotIfUntouched :exec
-- An operation that was never granted a command did nothing.
UPDATE budget_slots b SET released_at = @now
WHERE b.operation_id = @operation_id AND b.released_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM commands c WHERE c.operation_id = @operation_id AND c.granted_at IS NOT NULL);

-- name: ListSlots :many
SELECT s.operation_id, s.machine_id, s.taken_at, s.released_at, o.phase FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.released_at IS NULL AND (s.taken_at, s.operation_id) > (@after_taken::timestamptz, @after_id::text)
ORDER BY s.taken_at, s.operation_id LIMIT @page_size;

-- name: SlotsLeftBehind :many
-- The machines whose operation has ended without giving its slot back, the longest held first.
SELECT s.machine_id FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.released_at IS NULL AND o.finished_at IS NOT NULL ORDER BY s.taken_at LIMIT @page_size;

-- name: SlotOfMachine :one
SELECT s.operation_id, s.machine_id, s.taken_at, s.released_at, o.phase FROM budget_slots s JOIN operations o USING (operation_id)
WHERE s.machine_id = @machine_id AND s.released_at IS NULL;

-- name: Freeze :exec
UPDATE cluster_state SET frozen_since = @now WHERE frozen_since IS NULL;

-- name: CountWaitingForBudget :one
SELECT count(*) FROM operations WHERE destructive AND phase = 'PENDING' AND wait_reason = 'WAITING_FOR_BUDGET';
