// Package imagelayout names the files and file systems of a machine's image: ingot-image writes them under these names,
// and the agent finds them there when it runs as process 1.
package imagelayout

const (
	// ModuleList is the file that lists kernel modules: one absolute path a line, perhaps followed by parameters, in the
	// order in which they are inserted. Its presence marks a root file system as an image made for the agent.
	ModuleList = "/lib/modules/load-order"
	// HardwareList is the file that lists drivers: a line of paths, in the order in which they are inserted. Indented
	// lines with the aliases of their devices follow.
	HardwareList = "/lib/modules/hardware"
	// StateTemplate is the file of an installer's image that holds an empty file system labelled StateLabel, compressed
	// by zstd.
	StateTemplate = "/lib/ingot/state.ext4.zst"
	// DataTemplate is the same for data disks, without a label.
	DataTemplate = "/lib/ingot/data.ext4.zst"
	// StateLabel is the label of the file system that holds a machine's state.
	StateLabel = "INGOT-STATE"
	// TokenFile is the file of the state file system that holds the bundle for the first enrolment.
	TokenFile = "bootstrap-token"
)
