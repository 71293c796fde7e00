// Package support tests bundles for those who help, made of a controller that holds secrets.
package support
