DROP INDEX machines_by_bmc_credentials;
DROP INDEX machines_by_bmc;
DROP TABLE bmc_certificates;
ALTER TABLE bmc_credentials
    DROP COLUMN adopted, DROP COLUMN allow_unverified_tls, DROP COLUMN allow_plain_http, DROP COLUMN allowed_endpoints;
