package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Descriptors travel in batches. The kernel passes at most 253 with a message
// (SCM_MAX_FD), and it drops without an error those that the receiver has no room for,
// so every batch says how many it carries and is acknowledged before the next is sent.
//
// A batch is one frame of four little-endian uint32 with the descriptors attached to it:
// magic, descriptors sent before, descriptors in this batch, descriptors in all. The
// answer is a frame as well: magic, descriptors received before, in this batch, status.
const (
	fdBatch    = 250
	fdMax      = 253
	fdFrame    = 16
	fdMagic    = 0x44464e42 // "BNFD"
	fdAckMagic = 0x4b414e42 // "BNAK"
)

// Statuses of an acknowledgement.
const (
	ackOK = iota
	ackTruncated
	ackCount
	ackProtocol
)

var ackText = map[uint32]string{
	ackTruncated: "the receiver could not take all of them (its descriptor limit?)",
	ackCount:     "the receiver counts or expects another number",
	ackProtocol:  "the receiver did not understand the message",
}

// ErrTruncated says that descriptors sent to this process were lost, because it may not
// open as many.
var ErrTruncated = errors.New("descriptors were lost on the way (MSG_CTRUNC): the descriptor limit of this process is too low")

// SendFDs sends the descriptors of files over c to a peer that calls RecvFDs with the
// same number, and returns when the peer has confirmed every one. The files stay the
// caller's. Set a deadline on c to bound the waiting. After an error the connection is
// out of step and has to be closed.
func SendFDs(c *net.UnixConn, files []*os.File) error {
	for sent := 0; sent < len(files); {
		batch := files[sent:min(sent+fdBatch, len(files))]
		if err := sendBatch(c, batch, sent, len(files)); err != nil {
			return fmt.Errorf("shm: send descriptors %d to %d of %d: %w", sent+1, sent+len(batch), len(files), err)
		}
		sent += len(batch)
	}
	return nil
}

func sendBatch(c *net.UnixConn, files []*os.File, before, total int) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	frame := putFrame(fdMagic, before, len(fds), total)
	n, _, err := c.WriteMsgUnix(frame, unix.UnixRights(fds...), nil)
	runtime.KeepAlive(files)
	if err != nil {
		return err
	}
	if n < len(frame) { // the descriptors went with the first byte
		if _, err := c.Write(frame[n:]); err != nil {
			return err
		}
	}
	ack := make([]byte, fdFrame)
	if _, err := io.ReadFull(c, ack); err != nil {
		return fmt.Errorf("wait for the receiver: %w", err)
	}
	magic, b, got, status := getFrame(ack)
	switch {
	case magic != fdAckMagic:
		return fmt.Errorf("the answer starts with %#08x, want %#08x", magic, uint32(fdAckMagic))
	case status != ackOK:
		if text := ackText[status]; text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("the receiver answers with status %d", status)
	case int(b) != before || int(got) != len(fds):
		return fmt.Errorf("the receiver confirms %d after %d, sent were %d after %d", got, b, len(fds), before)
	}
	return nil
}

// RecvFDs receives exactly want descriptors that a peer sends with SendFDs. They are
// closed on exec. On an error all that arrived are closed again, the peer is told if
// possible, and the connection has to be closed. Set a deadline on c to bound the
// waiting.
func RecvFDs(c *net.UnixConn, want int) ([]*os.File, error) {
	var files []*os.File
	for len(files) < want {
		batch, status, err := recvBatch(c, len(files), want)
		files = append(files, batch...)
		if err == nil {
			_, err = c.Write(putFrame(fdAckMagic, len(files)-len(batch), len(batch), int(status)))
		} else if status != ackOK {
			// A courtesy: err is what counts, and the peer may be gone.
			_, _ = c.Write(putFrame(fdAckMagic, 0, 0, int(status)))
		}
		if err != nil {
			got := len(files)
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("shm: receive descriptors (%d of %d arrived): %w", got, want, err)
		}
	}
	return files, nil
}

// recvBatch receives one batch. The files are the caller's, also when err is set; then
// status is what to tell the peer, ackOK for nothing.
func recvBatch(c *net.UnixConn, before, want int) (files []*os.File, status uint32, err error) {
	frame := make([]byte, fdFrame)
	oob := make([]byte, unix.CmsgSpace(4*fdMax)+unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, flags, _, err := c.ReadMsgUnix(frame, oob)
	if oobn > 0 {
		var perr error
		files, perr = parseRights(oob[:oobn])
		err = errors.Join(err, perr)
	}
	switch {
	case err != nil:
		return files, ackOK, err
	case n == 0:
		return files, ackOK, io.ErrUnexpectedEOF
	case flags&unix.MSG_CTRUNC != 0:
		return files, ackTruncated, ErrTruncated
	}
	if _, err := io.ReadFull(c, frame[n:]); err != nil {
		return files, ackOK, err
	}
	magic, b, count, total := getFrame(frame)
	switch {
	case magic != fdMagic:
		return files, ackProtocol, fmt.Errorf("the message starts with %#08x, want %#08x", magic, uint32(fdMagic))
	case int(total) != want:
		return files, ackCount, fmt.Errorf("the sender announces %d, expected are %d", total, want)
	case int(b) != before:
		return files, ackCount, fmt.Errorf("the sender has sent %d before, received were %d", b, before)
	case int(count) != len(files) || count == 0 || len(files) > want-before:
		return files, ackCount, fmt.Errorf("the message announces %d and carries %d, open are %d", count, len(files), want-before)
	}
	return files, ackOK, nil
}

// parseRights returns the descriptors among the control messages.
func parseRights(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue // credentials, when the socket asks for them
		}
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return files, fmt.Errorf("control message: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func putFrame(words ...int) []byte {
	frame := make([]byte, 0, fdFrame)
	for _, w := range words {
		frame = binary.LittleEndian.AppendUint32(frame, uint32(w))
	}
	return frame
}

func getFrame(f []byte) (a, b, c, d uint32) {
	le := binary.LittleEndian
	return le.Uint32(f), le.Uint32(f[4:]), le.Uint32(f[8:]), le.Uint32(f[12:])
}
