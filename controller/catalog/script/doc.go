// Package script is the catalogue of scripts: it takes them in, checks them against their digest, and throws them out.
// Their bytes are blobs beside those of images; their entries are in the database.
package script
