package handoff

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"

	"baton/internal/shm"
)

// A message is a frame of two little-endian uint32, the length of the JSON text and the
// number of descriptors, then the text, then the descriptors in acknowledged batches
// (shm.SendFDs). The text is an object with one member, named for the type of the
// message: {"hello": {...}}.
const (
	frameHeader = 8
	// maxText bounds a message; an order for a million tokens is shorter.
	maxText = 16 << 20
	// maxReplyText bounds what a provider may send.
	maxReplyText = 1 << 20
	// maxFDs bounds the descriptors of a message, each a block.
	maxFDs = 1 << 14
)

// message is one of the types of this protocol.
type message interface{ validate() error }

// kinds are the messages by name.
var kinds = map[string]func() message{
	"hello":   func() message { return new(Hello) },
	"welcome": func() message { return new(Welcome) },
	"reject":  func() message { return new(Reject) },
	"order":   func() message { return new(orderMessage) },
	"reply":   func() message { return new(Reply) },
	"cancel":  func() message { return new(Cancel) },
	"bye":     func() message { return new(Bye) },
}

// orderMessage is an Order, whose check needs to know how many descriptors came.
type orderMessage struct{ Order }

func (o *orderMessage) validate() error { return nil }

// kindOf is the name of m's type.
func kindOf(m message) string {
	for name, newMessage := range kinds {
		if reflect.TypeOf(newMessage()) == reflect.TypeOf(m) {
			return name
		}
	}
	return ""
}

// appendText appends the text of a message.
func appendText(dst []byte, m message) ([]byte, error) {
	dst = append(dst, `{"`+kindOf(m)+`":`...)
	var err error
	if o, ok := m.(*orderMessage); ok {
		dst, err = o.appendJSON(dst)
	} else {
		var body []byte
		body, err = json.Marshal(m)
		dst = append(dst, body...)
	}
	if err != nil {
		return nil, fmt.Errorf("handoff: encode: %w", err)
	}
	return append(dst, '}'), nil
}

// decode parses a text strictly: one message of a known type, no unknown, doubled or
// differently spelled member anywhere, nothing behind it.
func decode(text []byte) (message, error) {
	if err := checkKeys(text); err != nil {
		return nil, fmt.Errorf("handoff: message: %w", err)
	}
	kind, body, err := unwrap(text)
	if err != nil {
		return nil, fmt.Errorf("handoff: message: %w", err)
	}
	newMessage, known := kinds[kind]
	if !known {
		return nil, fmt.Errorf("handoff: message: type %q is unknown", clip(kind, 32))
	}
	m := newMessage()
	if err := strict(body, m); err != nil {
		return nil, fmt.Errorf("handoff: %s: %w", kind, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("handoff: %s: %w", kind, err)
	}
	return m, nil
}

// unwrap takes the object around a message off, by hand: encoding/json would go over a long
// order three times more.
func unwrap(text []byte) (kind string, body []byte, err error) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("{"))
	if ok {
		rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(`"`))
	}
	name, rest, named := bytes.Cut(rest, []byte(`"`))
	if ok && named {
		rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(":"))
	}
	body, closed := bytes.CutSuffix(rest, []byte("}"))
	if !ok || !named || !closed {
		return "", nil, errors.New(`want an object with one member, {"type": {...}}`)
	}
	return string(name), body, nil
}

// strict is json.Unmarshal of an object that refuses unknown members.
func strict(data []byte, v any) error {
	data = bytes.TrimSpace(data)
	if !bytes.HasPrefix(data, []byte("{")) {
		return errors.New("want an object")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(data)) {
		return errors.New("something follows the object")
	}
	return nil
}

// writeMessage sends a message and its descriptors, and returns when the peer has
// confirmed those. After an error the connection has to be closed.
func writeMessage(c *net.UnixConn, m message, files []*os.File) error {
	frame, err := appendText(make([]byte, frameHeader), m)
	if err != nil {
		return err
	}
	length := len(frame) - frameHeader
	if length > maxText || len(files) > maxFDs {
		return fmt.Errorf("handoff: a message of %d bytes and %d descriptors is too large", length, len(files))
	}
	binary.LittleEndian.PutUint32(frame, uint32(length))
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(files)))
	if _, err := c.Write(frame); err != nil {
		return fmt.Errorf("handoff: send: %w", err)
	}
	return shm.SendFDs(c, files)
}

// readMessage receives a message of at most most bytes. The descriptors are the caller's.
func readMessage(c *net.UnixConn, most int) (message, []*os.File, error) {
	var frame [frameHeader]byte
	if _, err := io.ReadFull(c, frame[:]); err != nil {
		return nil, nil, fmt.Errorf("handoff: receive: %w", err)
	}
	n, fds := binary.LittleEndian.Uint32(frame[:]), binary.LittleEndian.Uint32(frame[4:])
	if int64(n) > int64(most) || fds > maxFDs {
		return nil, nil, fmt.Errorf("handoff: receive: a message of %d bytes and %d descriptors, at most %d and %d are allowed", n, fds, most, maxFDs)
	}
	text, err := readText(c, int(n))
	if err != nil {
		return nil, nil, fmt.Errorf("handoff: receive: %w", err)
	}
	// Before the text is looked at: the sender waits for the confirmation.
	files, err := shm.RecvFDs(c, int(fds))
	if err != nil {
		return nil, nil, err
	}
	m, err := decode(text)
	if err == nil {
		if o, ok := m.(*orderMessage); ok {
			err = o.Order.validate(len(files))
			if err != nil {
				err = fmt.Errorf("handoff: order: %w", err)
			}
		} else if len(files) > 0 {
			err = fmt.Errorf("handoff: %d descriptors with a message that has none", len(files))
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeAll(files))
	}
	return m, files, nil
}

// readText reads n bytes, without believing n before they are there.
func readText(c io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(min(n, 1<<20))
	if _, err := io.CopyN(&b, c, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
