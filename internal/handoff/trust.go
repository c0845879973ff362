package handoff

import "fmt"

// Trust is how the decoder knows that nobody else can write to cells that it adopts.
type Trust uint8

const (
	// Leased: the kernel has granted a read lease, which it does only if no descriptor
	// open for writing and no mapping made with one is left in any process. The blocks
	// can be filled again. It does not see pages that io_uring or vmsplice hold, so it
	// is for providers that cannot use those.
	Leased Trust = iota
	// Sealed: the kernel has sealed the blocks against writing for ever, which it does
	// only if no writable mapping and no pinned page is left. The blocks are used once.
	Sealed
	// Attached: the provider keeps its mapping, and is trusted like the decoder itself.
	// It ends with the provider's word that it is done, or with its process's end.
	Attached
)

var trustNames = [...]string{"leased", "sealed", "attached"}

func (t Trust) String() string {
	if int(t) < len(trustNames) {
		return trustNames[t]
	}
	return fmt.Sprintf("trust(%d)", uint8(t))
}

// ParseTrust returns the mode of that name.
func ParseTrust(name string) (Trust, error) {
	for t, n := range trustNames {
		if n == name {
			return Trust(t), nil
		}
	}
	return 0, fmt.Errorf("handoff: trust mode %q is unknown, there are leased, sealed and attached", name)
}

// MarshalText is the name.
func (t Trust) MarshalText() ([]byte, error) {
	if int(t) >= len(trustNames) {
		return nil, fmt.Errorf("handoff: no trust mode %d", uint8(t))
	}
	return []byte(trustNames[t]), nil
}

// UnmarshalText parses the name.
func (t *Trust) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTrust(string(text))
	return err
}
