package shm

import (
	"fmt"
	"os"
)

// Detach closes the object but not its descriptor, which it returns, to be sent to
// another process. The caller closes it.
func (o *Object) Detach() (*os.File, error) {
	if o.closed.Swap(true) {
		return nil, fmt.Errorf("shm: detach %q: %w", o.Name(), os.ErrClosed)
	}
	return o.file, nil
}
