// Package standby tests a controller whose database fails over to its standby.
package standby
