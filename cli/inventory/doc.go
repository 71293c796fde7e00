// Package inventory has the commands for machines and nodes, and for the images, scripts, clusters, plans and runs that
// work on them needs.
package inventory
