// Package statefile keeps the state of a sequence, its tokens and its cells, in a file:
// the route that a prompt takes between two processes that cannot share memory, and what
// is left of it when both have ended.
//
// The format is the sequence state of llama.cpp v0.5.0, what llama_state_seq_save_file
// writes and llama-server's slot files hold, so that files go both ways. Everything is
// little endian and packed:
//
//	u32 magic 0x67677371, u32 version 3
//	u32 n_tokens, n_tokens × i32: the ids, or llama-server's list (-1, 1, count, ids, 0)
//	u32 n_stream, then per stream
//	  u32 cell_count, nothing more if it is 0
//	  cell_count × (i32 pos, u32 n_seq = 1, i32 seq_id)
//	  u32 v_trans, u32 n_layer
//	  n_layer × K: i32 type, u64 row_size, cell_count × row_size bytes
//	  n_layer × V: the same; with v_trans 1: i32 type, u32 el_size, u32 width, and the
//	    matrix transposed, all cells of one element after the other
//
// Rows are f16. Save writes the ids alone, one stream and v_trans 0, as llama.cpp does
// with flash attention; it can load that with flash attention only. Restore takes all of
// the above, with the cells in any order.
//
// The format has neither a checksum nor the model's name, so Save puts a file NAME.sum
// beside it, in text: the SHA-256 of the file, its size, the number of tokens and the
// fingerprint of the model. Restore refuses a file that differs from its sum. A file
// without one, another program's, is restored with Info.Verified false: that its rows
// are whole and of this model is then anybody's guess.
//
// Rows move once: from the blocks of the cache into the file, or back (twice if they
// were transposed). Nothing of a file is trusted before it was checked, and it is read
// into cells that nobody else sees yet.
//
// The package knows nothing of models, slots or HTTP.
package statefile
