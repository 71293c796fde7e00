resource "ingot_installation" "web" {
  machine_id = "web-1"
  image      = "debian-12"
  generation = 1

  seed = {
    ssh_authorized_keys  = ["ssh-ed25519 AAAA… admin@example.net"]
    user_data_wo         = file("user-data")
    user_data_wo_version = 1
  }
}
