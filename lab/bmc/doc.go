// Package bmc adds a BMC to a laboratory machine: a Redfish service and an IPMI one, over the network, in front of any
// Chassis.
//
// The Redfish service is written here and can be made to misbehave. IPMI is OpenIPMI's ipmi_sim, a foreign program
// without knowledge of this project.
package bmc
