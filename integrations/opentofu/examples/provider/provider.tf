terraform {
  required_providers {
    ingot = { source = "ingot-metal/ingot" }
  }
}

# What is not set is taken from INGOT_SERVER, INGOT_CA_FILE and INGOT_TOKEN_FILE.
provider "ingot" {
  endpoint   = "ingot.example.net:50051"
  ca_file    = "ca.pem"
  token_file = "token"
}
