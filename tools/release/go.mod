module github.com/ingot-metal/ingot/tools/release

go 1.26.0

require (
	aead.dev/minisign v0.3.0
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/rpmpack v0.7.1
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.1
)

require (
	github.com/cavaliergopher/cpio v1.0.1 // indirect
	github.com/klauspost/compress v1.18.0 // indirect
	github.com/klauspost/pgzip v1.2.6 // indirect
	github.com/ulikunitz/xz v0.5.12 // indirect
	golang.org/x/crypto v0.13.0 // indirect
	golang.org/x/sys v0.12.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
