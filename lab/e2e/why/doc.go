// Package why tests what Ingot says of a broken fleet, and that every action which it offers there succeeds.
package why
