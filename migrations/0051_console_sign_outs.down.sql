DROP TABLE console_sign_outs;
