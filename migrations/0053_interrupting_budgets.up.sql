-- Budgets limit one harm: DESTROYS loses data, INTERRUPTS takes machines out of service.
ALTER TABLE budgets ADD COLUMN harm text COLLATE "C" NOT NULL DEFAULT 'DESTROYS' CHECK (harm IN ('DESTROYS', 'INTERRUPTS'));

-- The operation began on a machine in service, and takes it out of service.
ALTER TABLE operations ADD COLUMN interrupts boolean NOT NULL DEFAULT false;

-- An operation holds one slot of each harm that it does; a machine one of each at most.
ALTER TABLE budget_slots ADD COLUMN harm text COLLATE "C" NOT NULL DEFAULT 'DESTROYS' CHECK (harm IN ('DESTROYS', 'INTERRUPTS'));
ALTER TABLE budget_slots DROP CONSTRAINT budget_slots_pkey, ADD PRIMARY KEY (operation_id, harm);
DROP INDEX budget_slots_held;
CREATE UNIQUE INDEX budget_slots_held ON budget_slots (machine_id, harm) WHERE released_at IS NULL;

-- How many machines of a rollout are under work at a time where neither its caller nor a budget has a bound; 0 is none.
ALTER TABLE rollouts ADD COLUMN default_in_flight int NOT NULL DEFAULT 0, ADD COLUMN default_per_rack int NOT NULL DEFAULT 0;

DROP INDEX operations_waiting_for_slots;
CREATE INDEX operations_waiting_for_slots ON operations (created_at, operation_id) WHERE (destructive OR interrupts) AND phase = 'PENDING';
