resource "ingot_machine" "web" {
  machine_id = "web-1"
  labels     = { tier = "web" }
  spec       = { rack = "r7", mac_addresses = ["52:54:00:00:07:01"] }
  on_destroy = "purge"
}
