data "ingot_machines" "broken" {
  filter = "rack=r7,effective_state=ATTENTION"
}

output "broken" {
  value = { for m in data.ingot_machines.broken.machines : m.machine_id => m.attention_message }
}
