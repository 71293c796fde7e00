DROP TABLE system_seeds;
