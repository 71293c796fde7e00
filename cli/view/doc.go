// Package view turns what the API answers into text for people and scripts: tables, JSON, YAML and the live
// view of an operation. Everything here is pure: messages in, strings out. Who writes them where, and what a
// terminal can show, is decided by the caller through Style and LiveConfig.
package view
