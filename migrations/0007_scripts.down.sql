DROP TABLE ssh_credentials, scripts;
