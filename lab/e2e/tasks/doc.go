// Package tasks holds the test that types what the page of common tasks says.
package tasks
