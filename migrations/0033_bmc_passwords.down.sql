DROP SEQUENCE bmc_password_versions;
DROP TABLE bmc_passwords;
