ALTER TABLE rollouts DROP COLUMN approval_policies;
DROP TABLE unapproved_work;
DROP TABLE approval_policies;
