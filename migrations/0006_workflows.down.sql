DROP TABLE workflows;
DROP FUNCTION workflows_final();
