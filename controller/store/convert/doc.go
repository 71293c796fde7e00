// Package convert makes messages and domain values of database rows, and rows of them.
package convert
