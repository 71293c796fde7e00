// Package fleetview holds the test of the calls that look at many machines: counts, explanations, orders and watches.
package fleetview
