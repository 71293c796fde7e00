package view

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Bytes writes a size with a binary unit and three digits at most before its letter: "512 B", "1.0 GiB".
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), -1
	for size >= 1024 && unit < 5 {
		size /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGTPE"[unit])
}

// Transfer is one line on how far a transfer is. A total of 0 is not known.
func Transfer(what string, done, total int64, took time.Duration) string {
	line := what + " "
	rate := float64(done) / max(took.Seconds(), 0.001)
	if total > 0 {
		percent := int(done * 100 / total)
		line += fmt.Sprintf("%s %3d%% ", Bar(percent, 30), min(percent, 100))
	}
	line += fmt.Sprintf("%s %s/s", Bytes(done), Bytes(int64(rate)))
	if total > done && rate > 0 && took > time.Second {
		line += " ETA " + Duration(time.Duration(float64(total-done)/rate)*time.Second)
	}
	return line
}

// Images are the columns of `ingot image list`.
func (s Style) Images(im *pb.Image) (cells, wide []Cell) {
	return []Cell{
			{"IMAGE_REF", im.GetImageRef()}, {"KIND", im.GetKind()}, {"ARCH", im.GetArch()}, {"FORMAT", im.GetFormat()},
			{"SIZE", Bytes(im.GetSizeBytes())}, {"FILE", Bytes(im.GetFileSizeBytes())}, {"AGE", Age(im.GetCreatedAt(), s.Now)},
		}, []Cell{
			{"FIRMWARE", strings.Join(im.GetFirmware(), ",")}, {"MINIMUM_DISK", Bytes(im.GetMinimumDiskBytes())},
			{"SHA256_FILE", im.GetSha256File()}, {"SHA256_RAW", im.GetSha256Raw()}, {"URL", Clean(im.GetUrl())},
		}
}

// Image is the sheet of `ingot image show`.
func (s Style) Image(im *pb.Image) string {
	f := &Fields{}
	f.Add("Image", im.GetImageRef())
	f.Add("Kind", im.GetKind())
	f.Add("Arch", im.GetArch())
	f.Add("Firmware", strings.Join(im.GetFirmware(), ", "))
	f.Add("Format", im.GetFormat())
	f.Add("Size", exactly(im.GetSizeBytes()))
	f.Add("File", exactly(im.GetFileSizeBytes()))
	f.Add("MinimumDisk", exactly(im.GetMinimumDiskBytes()))
	f.Add("SHA256File", im.GetSha256File())
	f.Add("SHA256Raw", im.GetSha256Raw())
	f.Add("SHA256Source", im.GetSha256Source())
	f.Add("URL", Clean(im.GetUrl()))
	f.Add("Created", Time(im.GetCreatedAt()))
	return f.String()
}

func exactly(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d bytes)", Bytes(n), n)
}
