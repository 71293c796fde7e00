DROP INDEX commands_hardware_tests;
