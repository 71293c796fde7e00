// Command ociimage writes an image of one of Ingot's programs as an archive of an OCI image layout. It needs no daemon
// and no base image.
//
//	ociimage --image controller|agent|cluster-api|cli --bin DIR --ca FILE --version V --revision R --epoch SECONDS
//	  --out FILE
//
// The same files and flags give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	var name, out string
	var epoch int64
	f := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	f.StringVar(&name, "image", "", "controller, agent, cluster-api or cli")
	f.StringVar(&o.bin, "bin", "bin", "directory with the static programs")
	f.StringVar(&o.ca, "ca", "/etc/ssl/certs/ca-certificates.crt", "the authorities that the program is to trust, in PEM")
	f.StringVar(&o.version, "version", "", "version of the programs")
	f.StringVar(&o.revision, "revision", "", "commit that they are of")
	f.Int64Var(&epoch, "epoch", 0, "the time of everything in the image, in seconds since 1970")
	f.StringVar(&out, "out", "", "file to write")
	if err := f.Parse(args); err != nil {
		return err
	}
	kind, ok := kinds[name]
	switch {
	case !ok:
		return fmt.Errorf("--image is controller, agent, cluster-api or cli, not %q", name)
	case out == "":
		return errors.New("--out is required")
	case !tag.MatchString(o.version):
		return fmt.Errorf("--version %q cannot be a tag: letters, digits, dots, hyphens", o.version)
	}
	o.created = time.Unix(epoch, 0).UTC()
	img, err := build(kind, o)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	ref := kind.name + ":" + o.version
	if err := write(out, ref, img, o); err != nil {
		return err
	}
	fmt.Println(out, ref, digest)
	return nil
}
