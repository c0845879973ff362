package gguftest

import (
	"bytes"
	"strings"
)

const (
	align = "general.alignment"
	max64 = 1<<64 - 1
)

// Hostile returns files that the parser must refuse. Where a name starts with a size,
// the file is modelled on a published crash of some other reader by a file of that size.
func Hostile() []Case {
	return []Case{
		// The fixed header.
		{"empty", nil, "file is empty"},
		{"one-byte", raw("G"), "needs 4 bytes, 1 are left"},
		{"text", raw("hello, world, this is no model at all"), `magic at offset 0: is "hell", expected "GGUF"`},
		{"lfs-pointer", raw("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), "git lfs pull"},
		{"old-ggml", raw("lmgg").zeros(60), "before GGUF"},
		{"magic-big-endian", raw("FUGG").zeros(20), "big-endian"},
		{"version-big-endian", raw("GGUF").bytes(0, 0, 0, 3).zeros(16), "version at offset 4: is 0x03000000: a big-endian file"},
		{"version-0", file(0, 0, 0), "version at offset 4: is 0, Baton reads 2 and 3"},
		{"version-1", raw("GGUF").u32(1).u32(0).u32(0).zeros(8), "version at offset 4: is 1"},
		{"version-99", file(99, 0, 0), "is 99, Baton reads 2 and 3"},
		{"ends-after-version", raw("GGUF").u32(3), "tensor count at offset 8: needs 8 bytes, 0 are left"},
		{"tensor-count-max", file(3, max64, 0).zeros(100), "tensor count at offset 8: is 18446744073709551615, but"},
		{"tensor-count-2^31", file(3, 1<<31, 0).zeros(100), "tensor count at offset 8: is 2147483648, but"},
		{"metadata-count-max", file(3, 0, max64).zeros(100), "metadata count at offset 16: is 18446744073709551615, but"},
		{"metadata-count-one-more", file(3, 0, 2).key("a", vU8).bytes(1), "metadata count at offset 16: is 2, but the 14 bytes that are left hold at most 1"},

		// Keys.
		{"36-bytes-key-length", file(3, 0, 1).u64(max64).zeros(4), "metadata count at offset 16: is 1, but the 12 bytes that are left hold at most 0"},
		{"key-length-max", file(3, 0, 1).u64(max64).zeros(40), "metadata 0: key at offset 24: length is 18446744073709551615, the limit is 65535"},
		{"key-length-past-end", file(3, 0, 1).u64(60).zeros(40), "metadata 0: key at offset 32: needs 60 bytes, 40 are left"},
		{"key-empty", file(3, 0, 1).key("", vU32).u32(1), "key at offset 24: is empty"},
		{"key-not-utf8", file(3, 0, 1).key("a\xff", vU32).u32(1), "is not valid UTF-8"},
		{"key-duplicate", file(3, 0, 2).key("a.b", vU32).u32(1).key("a.b", vU32).u32(1), `metadata 1 "a.b": key at offset 43: is a duplicate of metadata 0`},

		// Values.
		{"value-type-13", file(3, 0, 1).key("a", 13).zeros(8), `metadata 0 "a": value type at offset 33: 13 is unknown`},
		{"value-type-max", file(3, 0, 1).key("a", 1<<32-1).zeros(8), "4294967295 is unknown"},
		{"value-missing", file(3, 0, 1).key("a", vU64).u32(0), "uint64 at offset 37: needs 8 bytes, 4 are left"},
		{"bool-2", file(3, 0, 1).key("a", vBool).bytes(2), "bool at offset 37: is 2, must be 0 or 1"},
		{"bool-2-in-array", file(3, 0, 1).key("a", vArr).array(vBool, 3).bytes(0, 1, 2), "bool at offset 51: is 2"},
		{"string-length-max", file(3, 0, 1).key("a", vStr).u64(max64).zeros(4), "string at offset 37: length is 18446744073709551615"},
		{"string-length-2^63", file(3, 0, 1).key("a", vStr).u64(1 << 63).zeros(4), "string at offset 37: length is 9223372036854775808"},
		{"string-length-4g", file(3, 0, 1).key("a", vStr).u64(4 << 30).zeros(4), "string at offset 37: length is 4294967296"},
		{"string-past-end", file(3, 0, 1).key("a", vStr).u64(5).zeros(4), "needs 5 bytes, 4 are left: the file of 49 bytes is truncated (at least 1 bytes are missing)"},

		// Arrays.
		{"array-length-max", file(3, 0, 1).key("a", vArr).array(vU64, max64).zeros(64), "array length at offset 41: is 18446744073709551615, but the 64 bytes that are left hold at most 8"},
		{"array-length-wraps", file(3, 0, 1).key("a", vArr).array(vU64, 1<<61+1).zeros(64), "array length at offset 41: is 2305843009213693953"},
		{"array-strings-1g", file(3, 0, 1).key("a", vArr).array(vStr, 1<<30).zeros(64), "array length at offset 41: is 1073741824, but"},
		{"array-of-unknown", file(3, 0, 1).key("a", vArr).array(99, 0), "element type at offset 37: 99 is unknown"},
		{"array-string-past-end", file(3, 0, 1).key("a", vArr).array(vStr, 2).str("ok").u64(100).zeros(20), "needs 100 bytes, 20 are left"},
		{"array-nested-deep", file(3, 0, 1).key("a", vArr).nested(100_000), "array at offset 85: is nested deeper than 4 levels"},
		{"array-nested-wide", file(3, 0, 1).key("a", vArr).array(vArr, 1000).zeros(11_999), "array length at offset 41: is 1000, but"},

		// Alignment.
		{"57-bytes-alignment-0", file(3, 0, 1).key(align, vU32).u32(0), "is 0, must be a power of two"},
		{"90-bytes-alignment-0", file(3, 1, 1).key(align, vU32).u32(0).tensor("t", tF32, 0, 1), "is 0, must be a power of two"},
		{"65-bytes-alignment-array", file(3, 0, 1).key(align, vArr).array(vU32, 0), `metadata 0 "general.alignment": is of type array of 0 uint32, must be uint32`},
		{"alignment-string", file(3, 0, 1).key(align, vStr).str("32"), "is of type string, must be uint32"},
		{"alignment-float", file(3, 0, 1).key(align, vF32).u32(0x42000000), "is of type float32, must be uint32"},
		{"alignment-signed", file(3, 0, 1).key(align, vI32).u32(1<<32 - 32), "is of type int32, must be uint32"},
		{"alignment-33", file(3, 0, 1).key(align, vU32).u32(33), "is 33, must be a power of two"},
		{"alignment-2g", file(3, 0, 1).key(align, vU32).u32(1 << 31), "is 2147483648, must be a power of two from 1 to 65536"},

		// Tensor descriptions.
		{"73-bytes-dim-0", file(3, 1, 0).tensor("nine.char", tF32, 0, 4, 0), `tensor 0 "nine.char": dimension at offset 53: 1 is 0, must be at least 1`},
		{"dim-0-first", file(3, 1, 0).tensor("t", tQ8_0, 0, 0, 32).data(64), "dimension at offset 37: 0 is 0"},
		{"dims-none", file(3, 1, 0).tensor("t", tF32, 0).data(64), "number of dimensions at offset 33: is 0, must be 1 to 4"},
		{"dims-5", file(3, 1, 0).tensor("t", tF32, 0, 1, 1, 1, 1, 1).data(64), "number of dimensions at offset 33: is 5"},
		{"dims-2^32-1", file(3, 1, 0).str("t").u32(1<<32 - 1).zeros(64), "number of dimensions at offset 33: is 4294967295"},
		{"dim-2^63", file(3, 1, 0).tensor("t", tF32, 0, 1<<63).data(64), "pass 2^60"},
		{"dims-2^63-each", file(3, 1, 0).tensor("t", tF32, 0, 1<<63, 1<<63, 1<<63, 1<<63).data(64), "pass 2^60"},
		{"dims-product-wraps-to-0", file(3, 1, 0).tensor("t", tF32, 0, 1<<32, 1<<32).data(64), "pass 2^60"},
		{"dims-bytes-wrap", file(3, 1, 0).tensor("t", tF32, 0, 1<<60, 4).data(64), "pass 2^60"},
		{"row-not-whole-blocks", file(3, 1, 0).tensor("t", tQ8_0, 0, 33).data(68), "dimension at offset 37: 0 is 33, not a whole number of Q8_0 blocks of 32"},
		{"row-not-whole-superblocks", file(3, 1, 0).tensor("t", tQ4_K, 0, 128, 2).data(144), "not a whole number of Q4_K blocks of 256"},
		{"tensor-type-unknown", file(3, 1, 0).tensor("t", 4, 0, 32).data(64), `tensor 0 "t": type at offset 45: 4 is unknown`},
		{"tensor-type-max", file(3, 1, 0).tensor("t", 1<<32-1, 0, 32).data(64), "type at offset 45: 4294967295 is unknown"},
		{"tensor-name-empty", file(3, 1, 0).tensor("", tF32, 0, 1).data(64), "name at offset 24: is empty"},
		{"tensor-name-long", file(3, 1, 0).tensor(strings.Repeat("n", 65), tF32, 0, 1).data(64), "name at offset 24: length is 65, the limit is 64"},
		{"tensor-name-not-utf8", file(3, 1, 0).tensor("t\xc3", tF32, 0, 1).data(64), "is not valid UTF-8"},
		{"tensor-name-duplicate", file(3, 2, 0).tensor("t", tF32, 0, 8).tensor("t", tF32, 32, 8).data(64), `tensor 1 "t": name at offset 57: is a duplicate of tensor 0`},

		// Tensor data.
		{"160-bytes-ask-for-gigabytes", file(3, 1, 1).key("general.architecture", vStr).str("llama").tensor("token_embd.weight", tF16, 0, 1<<20, 1<<12).data(32), "its 8589934592 bytes at offset"},
		{"offset-past-end", file(3, 1, 0).tensor("t", tF32, 4096, 8).data(64), `tensor 0 "t": its 32 bytes at offset 4160 pass the end of the file at 128`},
		{"offset-max", file(3, 1, 0).tensor("t", tF32, max64-31, 8).data(64), "data offset 18446744073709551584 passes 2^60"},
		{"offset-2^63", file(3, 1, 0).tensor("t", tF32, 1<<63, 8).data(64), "data offset 9223372036854775808 passes 2^60"},
		{"offset-unaligned", file(3, 1, 0).tensor("t", tF32, 4, 8).data(64), "data offset 4 is not a multiple of the alignment 32"},
		{"data-missing", file(3, 1, 0).tensor("t", tF32, 0, 8), "(39 bytes are missing in all)"},
		{"data-one-byte-short", file(3, 1, 0).tensor("t", tF32, 0, 8).data(31), "its 32 bytes at offset 64 pass the end of the file at 95"},
		{"overlap-same-offset", file(3, 2, 0).tensor("a", tF32, 0, 8).tensor("b", tF32, 0, 8).data(64), `tensor 1 "b": its data at offset 96 overlaps tensor 0 "a"`},
		{"overlap-partly", file(3, 2, 0).tensor("a", tF32, 32, 8).tensor("b", tF32, 0, 16).data(64), `tensor 0 "a": its data at offset 128 overlaps tensor 1 "b"`},
	}
}

// nested appends arrays of one array each, depth of them.
func (r raw) nested(depth int) raw {
	one := raw(nil).array(vArr, 1)
	return append(r, bytes.Repeat(one, depth)...)
}
