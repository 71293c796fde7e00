// Package bmc gives a laboratory machine what a server has on its board: a Redfish service and an IPMI one, over
// the network, in front of anything that is a Chassis.
//
// The Redfish service is written here and can be told to misbehave; IPMI is OpenIPMI's ipmi_sim, a program that
// others wrote and that knows nothing of this project.
package bmc
