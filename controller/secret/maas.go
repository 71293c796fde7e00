package secret

// MAAS is the API key of a MAAS region: consumer:token:secret.
type MAAS string

// String and GoString keep it out of logs.
func (MAAS) String() string { return "[sealed]" }

// GoString keeps it out of logs too.
func (MAAS) GoString() string { return "[sealed]" }

func maasName(ref string) string { return "maas\x00" + ref }

// SealMAAS seals a key under its region's name.
func (b *Box) SealMAAS(ref string, key MAAS) []byte { return b.Seal(maasName(ref), []byte(key)) }

// OpenMAAS opens a key that was sealed under this name; ErrSealed where that is not possible.
func (b *Box) OpenMAAS(ref string, sealed []byte) (MAAS, error) {
	raw, err := b.Open(maasName(ref), sealed)
	return MAAS(raw), err
}
