// Package kv keeps the keys and values of attention: blocks of cells in shared memory,
// the pool that they come from, the sequences that they make up, and the index that
// finds cells computed before.
//
// A cell is one token position: a K row and a V row in every layer. A [Block] is a fixed
// number of cells in a memory object of its own, laid out as its [Layout] says. A
// [Sequence] is a list of tokens and of the runs of cells that hold them. No cell is
// ever copied: sequences with a common beginning use the same cells.
//
// What makes that safe is one rule: a cell that somebody may read does not change. A
// block's cells are filled in order, and only by one sequence at a time, its owner,
// which appends behind the last filled cell. A sequence that ends anywhere else in a
// block, or in a block that is frozen or has another owner, goes on in a new block; the
// old one stays as it is, partly filled. So a block may back any number of sequences.
//
// When a request is done its sequence goes into the [Index], a tree over tokens; a later
// prompt that begins alike starts from those cells (Index.Attach). Blocks that only the
// index uses are given back, least recently used first, when the pool needs room.
//
// A sequence of n tokens holds at most Layout.BlocksFor(n) blocks, whatever it was
// attached to: sequences that promise to stay below a length can be admitted so that
// they never run out of room.
//
// The package knows nothing of models, requests or HTTP.
//
// # Sharing
//
// Another process may fill cells. Blocks for that are reserved (Pool.ReserveShared), mapped
// read only in this process, and hold nothing that looks like a row until they are
// filled. When the kernel has confirmed that nobody else can write to them any more
// (Block.Lease, Block.Seal), a sequence adopts them (Sequence.Adopt), frozen: that moves
// no data. Who asks whom to fill what is not this package's business.
//
// # Concurrency
//
// Sequences and the index belong to one goroutine, the step loop; so do Pool.Alloc,
// Pool.ReserveShared and whatever else may need room, because they may evict from the
// index. Everything about sharing that takes system calls may be called from anywhere by
// who holds the block: Reservation.Prepare, Block.WriterFile, ReaderFile, Lease, Seal,
// Condemn and Release; so may Pool.Stats, Index.Stats, Pool.BrokenLeases and Pool.Close.
//
// There are two locks: Block.shareMu, which is held during system calls on that block,
// and Pool.mu, which is not held during any. They are taken in that order, and neither
// is held while the index is called. Reading and writing rows takes no lock.
//
// # Checks
//
// With BATON_VERIFY=1 in the environment every change checks the invariants of pool,
// sequences and index, and a broken one panics. Without it, a call that would bring a
// count out of step has no effect, and Stats.Faults counts it.
package kv
