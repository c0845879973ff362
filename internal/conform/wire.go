package conform

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"baton/internal/shm"
)

// send writes a frame: the lengths of text and descriptor list, the text, an object with
// one member named for the kind of the message, and the descriptors.
func send(c *net.UnixConn, kind string, message any, files ...*os.File) error {
	text, err := json.Marshal(map[string]any{kind: message})
	if err != nil {
		return err
	}
	end := time.Now().Add(10 * time.Second)
	err = c.SetWriteDeadline(end)
	if err == nil && len(files) > 0 { // batches of them are acknowledged
		err = c.SetReadDeadline(end)
	}
	if err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(files)))
	if _, err := c.Write(append(frame, text...)); err != nil {
		return fmt.Errorf("sending %s: %w", kind, err)
	}
	if err := shm.SendFDs(c, files); err != nil {
		return fmt.Errorf("sending %s: %w", kind, err)
	}
	return nil
}

// maxText bounds a message.
const maxText = 16 << 20

// errClosed says that the other side has closed the connection between two messages.
var errClosed = errors.New("the connection was closed")

// receive reads a message of this kind into m, whatever it holds besides; a member that
// m does not have is an error, and so is another kind.
func receive(c *net.UnixConn, within time.Duration, kind string, m any) ([]*os.File, error) {
	got, text, files, err := receiveAny(c, within)
	if err == nil && got != kind {
		err = fmt.Errorf("received %s, want %s: %.300s", got, kind, text)
	}
	if err == nil {
		if err = strictly(text, m); err != nil {
			err = fmt.Errorf("%s: %w: %.300s", kind, err, text)
		}
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close() // of no use
		}
		return nil, err
	}
	return files, nil
}

func receiveAny(c *net.UnixConn, within time.Duration) (kind string, text json.RawMessage, _ []*os.File, err error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", nil, nil, err
	}
	var frame [8]byte
	if _, err := io.ReadFull(c, frame[:]); err != nil {
		switch {
		case errors.Is(err, io.EOF):
			err = errClosed
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("no message within %v", within)
		}
		return "", nil, nil, err
	}
	n, fds := binary.LittleEndian.Uint32(frame[:]), binary.LittleEndian.Uint32(frame[4:])
	if n > maxText || fds > 1<<14 {
		return "", nil, nil, fmt.Errorf("a message of %d bytes and %d descriptors: is the length a little-endian uint32?", n, fds)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c, data); err != nil {
		return "", nil, nil, fmt.Errorf("a message of %d bytes: %w", n, err)
	}
	files, err := shm.RecvFDs(c, int(fds))
	if err != nil {
		return "", nil, nil, err
	}
	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(data, &envelope); err != nil || len(envelope) != 1 {
		return "", nil, files, fmt.Errorf("not a JSON object with one member: %.300s", data)
	}
	for kind, text = range envelope {
	}
	return kind, text, files, nil
}
