data "ingot_operation" "written" {
  operation_id = ingot_installation.web.operation_id
}
