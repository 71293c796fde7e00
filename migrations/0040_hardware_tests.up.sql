-- What tests of hardware have found, by the model of the machine: a machine's figures are compared with those of others of its model.
CREATE INDEX commands_hardware_tests ON commands ((evidence->>'hardware_model'), created_at DESC) WHERE kind = 'test_hardware';
