// Package bmcs holds changes of the passwords of BMCs, what BMCs say of hardware, and identify lights against whole
// systems.
package bmcs
