package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"baton/internal/engine"
)

const (
	// protocol is what a connection is upgraded to, and what both ends must speak.
	protocol = "baton-engine/1"
	// instanceHeader tells one decoder process from the next at the same address.
	instanceHeader = "Baton-Instance"

	pathInfo     = "/engine/info"
	pathStats    = "/engine/stats"
	pathGenerate = "/engine/generate"

	// maxPrompt bounds a prompt in tokens, of 4 bytes each.
	maxPrompt = 8 << 20
	// maxMessage bounds a message in bytes.
	maxMessage = 64 << 20
)

// Messages embed the engine's types, and override the fields that JSON cannot carry.
type (
	infoMessage struct {
		Protocol string
		engine.Info
	}
	// A requestMessage is followed by its prompt: after the line end little-endian 32-bit
	// ids. In JSON those of a long prompt would take milliseconds.
	requestMessage struct {
		engine.Request
		Prompt   int // ids that follow
		Sampling samplingMessage
	}
	samplingMessage struct {
		engine.Sampling
		LogitBias []biasMessage `json:",omitempty"`
	}
	biasMessage struct {
		Token int32
		Bias  number
	}
	eventMessage struct {
		engine.Event
		Logprob *logprobMessage  `json:",omitempty"`
		Top     []logprobMessage `json:",omitempty"`
		Result  *resultMessage   `json:",omitempty"`
	}
	logprobMessage struct {
		Token   int32
		Logprob number
	}
	resultMessage struct {
		engine.Result
		Err *engine.Error `json:",omitempty"`
	}
	statsMessage struct {
		engine.Stats
		Slots []slotMessage
	}
	slotMessage struct {
		engine.SlotState
		Sampling samplingMessage
	}
)

// number is a float32 that may be NaN or infinite; then it is a string.
type number float32

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 32)), nil
	}
	return strconv.AppendFloat(nil, f, 'g', -1, 32), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 32)
	if err != nil {
		return fmt.Errorf("found %s, expected a number", b)
	}
	*n = number(f)
	return nil
}

// appendMessage appends v as one line of JSON.
func appendMessage(buf *bytes.Buffer, v any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// parseMessage reads the one JSON value that data consists of.
func parseMessage(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("found more than one JSON value, expected one")
	}
	return nil
}

func encodeRequest(r *engine.Request) ([]byte, error) {
	if len(r.Prompt) > maxPrompt {
		return nil, fmt.Errorf("the prompt has %d tokens, expected at most %d: shorten it", len(r.Prompt), maxPrompt)
	}
	m := requestMessage{Request: *r, Prompt: len(r.Prompt), Sampling: toSampling(r.Sampling)}
	var buf bytes.Buffer
	if err := appendMessage(&buf, &m); err != nil {
		return nil, err
	}
	data := slices.Grow(buf.Bytes(), 4*len(r.Prompt))
	for _, id := range r.Prompt {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	if len(data) > maxMessage {
		return nil, fmt.Errorf("the request has %d bytes, expected at most %d", len(data), maxMessage)
	}
	return data, nil
}

func decodeRequest(data []byte) (*engine.Request, error) {
	line, ids, _ := bytes.Cut(data, []byte{'\n'})
	var m requestMessage
	if err := parseMessage(line, &m); err != nil {
		return nil, err
	}
	if m.Prompt < 0 || m.Prompt > maxPrompt || len(ids) != 4*m.Prompt {
		return nil, fmt.Errorf("found %d bytes for a prompt of %d tokens, expected 4 each", len(ids), m.Prompt)
	}
	r := m.Request
	r.Prompt = make([]int32, m.Prompt)
	for i := range r.Prompt {
		r.Prompt[i] = int32(binary.LittleEndian.Uint32(ids[4*i:]))
	}
	r.Sampling = m.Sampling.value()
	return &r, nil
}

func toSampling(s engine.Sampling) samplingMessage {
	m := samplingMessage{Sampling: s}
	for _, b := range s.LogitBias {
		m.LogitBias = append(m.LogitBias, biasMessage{b.Token, number(b.Bias)})
	}
	return m
}

func (m *samplingMessage) value() engine.Sampling {
	s := m.Sampling
	s.LogitBias = nil
	for _, b := range m.LogitBias {
		s.LogitBias = append(s.LogitBias, engine.TokenBias{Token: b.Token, Bias: float32(b.Bias)})
	}
	return s
}

// appendEvent appends e as one line.
func appendEvent(buf *bytes.Buffer, e *engine.Event) error {
	m := eventMessage{Event: *e}
	if e.Logprob != (engine.TokenLogprob{}) {
		m.Logprob = &logprobMessage{e.Logprob.Token, number(e.Logprob.Logprob)}
	}
	for _, t := range e.Top {
		m.Top = append(m.Top, logprobMessage{t.Token, number(t.Logprob)})
	}
	if e.Result != nil {
		m.Result = &resultMessage{*e.Result, fromError(e.Result.Err)}
	}
	return appendMessage(buf, &m)
}

func decodeEvent(line []byte) (engine.Event, error) {
	var m eventMessage
	if err := parseMessage(line, &m); err != nil {
		return engine.Event{}, err
	}
	e := m.Event
	if e.Kind > engine.Done || (e.Kind == engine.Done) != (m.Result != nil) {
		return engine.Event{}, fmt.Errorf("found an event of kind %d with result %v, expected kind 0 to %d and a result with the last", e.Kind, m.Result != nil, engine.Done)
	}
	if m.Logprob != nil {
		e.Logprob = engine.TokenLogprob{Token: m.Logprob.Token, Logprob: float32(m.Logprob.Logprob)}
	}
	if len(m.Top) > 0 {
		e.Top = make([]engine.TokenLogprob, len(m.Top))
		for i, t := range m.Top {
			e.Top[i] = engine.TokenLogprob{Token: t.Token, Logprob: float32(t.Logprob)}
		}
	}
	if m.Result != nil {
		r := m.Result.Result
		r.Err = toError(m.Result.Err)
		e.Result = &r
	}
	return e, nil
}

func toStats(s engine.Stats) *statsMessage {
	m := &statsMessage{Stats: s, Slots: make([]slotMessage, 0, len(s.Slots))}
	for _, slot := range s.Slots {
		m.Slots = append(m.Slots, slotMessage{slot, toSampling(slot.Sampling)})
	}
	return m
}

func (m *statsMessage) value() engine.Stats {
	s := m.Stats
	s.Slots = slices.Grow([]engine.SlotState(nil), len(m.Slots))
	for _, slot := range m.Slots {
		v := slot.SlotState
		v.Sampling = slot.Sampling.value()
		s.Slots = append(s.Slots, v)
	}
	return s
}

// codeCancelled stands for context.Canceled, which is no *engine.Error.
const codeCancelled engine.Code = "cancelled"

// fromError makes an error one that can be sent.
func fromError(err error) *engine.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return &engine.Error{Code: codeCancelled, Message: err.Error()}
	}
	return engine.AsError(err)
}

func toError(e *engine.Error) error {
	switch {
	case e == nil:
		return nil
	case e.Code == codeCancelled:
		return context.Canceled
	}
	return e
}
