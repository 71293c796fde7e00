// Package bmcpassword holds changes of the passwords of BMCs against whole systems.
package bmcpassword
