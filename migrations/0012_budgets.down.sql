DROP TABLE budget_slots, budgets;
ALTER TABLE operations DROP COLUMN destructive;
