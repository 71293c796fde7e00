// Package why tests Ingot's explanations of a broken fleet, and that every action which it offers there succeeds.
package why
