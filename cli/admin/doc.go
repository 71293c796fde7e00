// Package admin has the commands that run Ingot itself: tokens, agents, sites, credentials, webhooks, budgets and
// the audit log.
package admin
