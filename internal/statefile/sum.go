package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A sum file has one line that names the format, and one for the state file:
//
//	baton state sum 1
//	SHA-256 BYTES TOKENS MODEL
//
// A second such line describes the file that was there before. It is there because no
// file system replaces two files at once: with both lines in the sum, which is replaced
// first, either file that an interrupted Save leaves is found to be whole.
const (
	sumSuffix  = ".sum"
	sumTitle   = "baton state sum 1"
	maxRecords = 2
	maxSumFile = 1024
)

// record describes a state file.
type record struct {
	digest [sha256.Size]byte
	bytes  int64
	tokens int
	model  string // fingerprint
}

func encodeSum(records []record) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, sumTitle)
	for _, r := range records {
		fmt.Fprintf(&b, "%x %d %d %s\n", r.digest, r.bytes, r.tokens, r.model)
	}
	return b.Bytes()
}

// decodeSum reads what encodeSum writes, and nothing else.
func decodeSum(data []byte) ([]record, error) {
	bad := func(found string) error {
		return wrong(Damaged, "sum", found, fmt.Sprintf("%q and one or two lines of SHA-256, bytes, tokens and model", sumTitle))
	}
	title, rest, _ := strings.Cut(string(data), "\n")
	if title != sumTitle {
		return nil, bad("the first line " + clip(title))
	}
	var records []record
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		r, ok := decodeRecord(line)
		if !ok || len(records) == maxRecords {
			return nil, bad("the line " + clip(line))
		}
		records = append(records, r)
	}
	// One valid encoding: no other spelling of a number, no missing end of a line.
	if len(records) == 0 || !bytes.Equal(encodeSum(records), data) {
		return nil, bad("another encoding")
	}
	return records, nil
}

func decodeRecord(line string) (r record, ok bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 4 {
		return r, false
	}
	digest, err := hex.DecodeString(fields[0])
	if err != nil || copy(r.digest[:], digest) != len(r.digest) || len(digest) != len(r.digest) {
		return r, false
	}
	var err2 error
	r.bytes, err = strconv.ParseInt(fields[1], 10, 64)
	r.tokens, err2 = strconv.Atoi(fields[2])
	r.model = fields[3]
	return r, err == nil && err2 == nil && r.bytes > 0 && r.tokens > 0 && isFingerprint(r.model)
}

// isFingerprint reports whether s is 64 lower-case hexadecimal digits.
func isFingerprint(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// candidates are the records that a file of that size can be described by. It is an
// error if there are none, or none of the model.
func candidates(records []record, size int64, model string) ([]record, error) {
	var list []record
	for _, r := range records {
		if r.bytes == size {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, wrong(Damaged, "file", fmt.Sprintf("%d bytes", size), fmt.Sprintf("%d bytes, as its sum says", records[0].bytes))
	}
	var fitting []record
	for _, r := range list {
		if r.model == model {
			fitting = append(fitting, r)
		}
	}
	if len(fitting) == 0 {
		return nil, wrong(Unfit, "model fingerprint", list[0].model, model)
	}
	return fitting, nil
}

// verify finds the record of a file with that hash.
func verify(records []record, digest [sha256.Size]byte, tokens int) error {
	for _, r := range records {
		if r.digest != digest {
			continue
		}
		if r.tokens != tokens {
			return wrong(Damaged, "sum: tokens", r.tokens, tokens)
		}
		return nil
	}
	return wrong(Damaged, "SHA-256", fmt.Sprintf("%x", digest), fmt.Sprintf("%x, as its sum says", records[0].digest))
}
