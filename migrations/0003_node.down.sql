DROP TABLE node_reports;
DROP TABLE node_groups;
ALTER TABLE machines
    DROP COLUMN failed_plan_id,
    DROP COLUMN plan_id,
    DROP COLUMN last_install_error,
    DROP COLUMN install_attempts;
