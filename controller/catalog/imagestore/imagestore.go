// Package imagestore opens the store of the catalogues' files that a configuration names: a directory, or a bucket.
package imagestore

import (
	"log/slog"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/bucket"
	"github.com/ingot-metal/ingot/controller/config"
)

// Open opens the store. A bucket's service is asked nothing yet.
func Open(c *config.Config, log *slog.Logger) (blob.Store, error) {
	if c.Images.Bucket.Name == "" {
		return blob.Open(blob.Config{Path: c.ImagesPath()})
	}
	spool, err := blob.OpenSpool(blob.Config{Path: c.ImagesPath()})
	if err != nil {
		return nil, err
	}
	return Bucket(c.Images.Bucket, bucket.Config{Spool: spool, Logger: log})
}

// Look opens the store for reading alone: it makes and changes nothing.
func Look(c *config.Config) (blob.Reader, error) {
	if c.Images.Bucket.Name == "" {
		return blob.Look(c.ImagesPath()), nil
	}
	return Bucket(c.Images.Bucket, bucket.Config{})
}

// Bucket opens the bucket that the configuration names, with what else is given.
func Bucket(b config.Bucket, with bucket.Config) (*bucket.Bucket, error) {
	roots, err := b.Roots()
	if err != nil {
		return nil, err
	}
	if with.Host, with.Secure, err = b.Host(); err != nil {
		return nil, err
	}
	with.Name, with.Region, with.Prefix, with.PathStyle = b.Name, b.Region, b.Prefix, b.PathStyle
	with.CredentialsFile, with.Roots = b.CredentialsFile, roots
	return bucket.Open(with)
}
