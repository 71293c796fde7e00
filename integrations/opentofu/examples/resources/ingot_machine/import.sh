tofu import ingot_machine.web web-1
