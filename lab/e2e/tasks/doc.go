// Package tasks has the test that types the commands of the page of common tasks.
package tasks
