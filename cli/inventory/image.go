package inventory

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) imageCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Add, list, show and remove images",
		Long: `The image catalogue holds what machines are made of: operating systems (kind os), and the kernel, initramfs or
unified kernel image of the installer (installer-kernel, installer-initrd, installer-uki).`,
		Example: "  ingot image add debian-12 debian-12.raw.zst\n  ingot image list",
	}
	cmd.AddCommand(a.imageAddCmd(), a.imageListCmd(), a.imageShowCmd(), a.imageRemoveCmd())
	return cmd
}

func (a commands) imageAddCmd() *cobra.Command {
	im := &pb.Image{}
	cmd := &cobra.Command{
		Use:   "add NAME FILE|URL",
		Short: "Add an image from a file or a URL",
		Long: `Add an image. A file is sent to the server (- is standard input); a URL (https, http or oci) is
fetched by the server. oci://REGISTRY/REPOSITORY:TAG, or @sha256:DIGEST, is an artefact in a registry as ORAS pushes it;
?layer=TITLE chooses one of several files. The same image again changes nothing; another one under a name that is taken
is refused.

An operating system's image is a whole disk with a GUID partition table, as raw, zst, gz, xz or qcow2
(the last three kept as raw.zst); the format is found out by itself. --sha256 is the digest of the file as you have
it; the server refuses a file with another.

If it breaks off, repeat it.`,
		Example: `  ingot image add debian-12 debian-12.raw.zst
  ingot image add debian-12 https://images.example.org/debian-12.qcow2 --sha256 DIGEST
  ingot image add debian-12 oci://registry.example.org/images/debian:12
  ingot image add installer-kernel vmlinuz --kind installer-kernel --arch arm64`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			im.ImageRef = args[0]
			return a.addImage(cmd.Context(), im, args[1])
		},
	}
	f := cmd.Flags()
	f.StringVar(&im.Kind, "kind", "", "os (default), installer-kernel, installer-initrd or installer-uki")
	f.StringVar(&im.Arch, "arch", "", "amd64 or arm64 (default: as the image's partitions say, else amd64)")
	f.StringVar(&im.Format, "format", "", "raw, raw.zst, raw.gz, raw.xz or qcow2 (default: what the file looks like)")
	f.StringVar(&im.Sha256Source, "sha256", "", "SHA-256 of the file, in hexadecimal digits")
	f.StringVar(&im.Sha256Raw, "sha256-raw", "", "SHA-256 of the uncompressed bytes")
	f.Int64Var(&im.MinimumDiskBytes, "minimum-disk", 0, "smallest disk in bytes (default: the image and 64 MiB)")
	f.StringSliceVar(&im.Firmware, "firmware", nil, "bios, uefi (default: both)")
	command.Fixed(cmd, "kind", "os", "installer-kernel", "installer-initrd", "installer-uki")
	command.Fixed(cmd, "arch", "amd64", "arm64")
	command.Fixed(cmd, "format", "raw", "raw.zst", "raw.gz", "raw.xz", "qcow2")
	command.Fixed(cmd, "firmware", "bios", "uefi")
	return cmd
}

func (a commands) printImage(im *pb.Image) error {
	return a.app.Print(im, func() string { return a.app.Style().Image(im) }, im.GetImageRef())
}

func (a commands) imageListCmd() *cobra.Command {
	var kind, arch string
	l := command.ListOf(a.app.Services().Admin.ListImages, (*pb.Image).GetImageRef, view.Style.Images)
	l.Prepare = func([]string) error {
		l.Request.Filter = command.JoinFilter("kind", kind, "arch", arch, "", l.Request.Filter)
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Short:   "List images",
		Long:    `List the images of the catalogue. -o wide adds digests and where they came from.`,
		Example: "  ingot image list\n  ingot image list --kind os -o wide",
	}, "image_ref=debian-*", "size_bytes desc")
	cmd.Flags().StringVar(&kind, "kind", "", "only images of this kind")
	cmd.Flags().StringVar(&arch, "arch", "", "only images for this architecture")
	command.Fixed(cmd, "kind", "os", "installer-kernel", "installer-initrd", "installer-uki")
	command.Fixed(cmd, "arch", "amd64", "arm64")
	return cmd
}

func (a commands) imageShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show one image",
		Long:              `Show one image: sizes, digests, and where it came from.`,
		Example:           "  ingot image show debian-12",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteImages("")),
		RunE:              command.Show(a.app, a.app.Services().Admin.GetImage, (*pb.Image).GetImageRef, view.Style.Image),
	}
}

func (a commands) imageRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an image that nothing needs",
		Long: `Remove an image from the catalogue. It is refused while an operation writes it or a machine
has it as its default. Machines that were made from it stay as they are.`,
		Example:           "  ingot image remove debian-11",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteImages("")),
		RunE:              command.Do(a.app, "Removed", a.app.Services().Admin.RemoveImage, (*pb.Image).GetImageRef),
	}
}
