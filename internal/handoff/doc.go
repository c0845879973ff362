// Package handoff is the protocol by which one process fills KV cells that another
// process owns, without a byte of them being moved.
//
// The decoder owns blocks (package kv). For a prompt it makes a share: it reserves
// blocks, sends their descriptors with the prompt's token ids to a provider, and keeps
// the only record of what it asked for ([Table.Share]). The provider maps the blocks,
// writes the K and V rows through its own mapping, says how far it has come in a header
// page, lets go of everything and replies ([Serve]). The decoder then adopts the cells
// ([Table.Adopt]):
//
//  1. the id names an outstanding share of the slot, and is used up;
//  2. the kernel confirms that nobody can write to the blocks any more ([Trust]);
//  3. only then the header page is read, once, and compared with the record;
//  4. rows are computed again at random positions and compared with those in the blocks;
//  5. the step loop appends the blocks to a sequence, which moves nothing.
//
// What goes wrong is a [Refusal], out of one table. Blocks of a share that came to
// nothing are in quarantine until the kernel confirms that they are safe to use again.
//
// The package knows blocks, sockets and processes. It knows nothing of models (it is
// given functions that compute rows) and nothing of HTTP.
//
// # Trust
//
// The page and the blocks are memory that the provider can write, so nothing in them is
// believed before it is compared: the decoder's record is the authority. What the checks
// cannot see is a provider that writes right rows of layer 0 and forged ones above: who
// fills the blocks is trusted to compute, and not trusted with anything else.
//
// # Goroutines
//
// Share, Wait, Adopt and Release may be called by any number of goroutines and do all
// system calls on the caller's. What needs the step loop (the index, the pool's room,
// sequences) goes through Options.OnLoop, and makes no system calls there. Table.mu and
// Provider.mu are never held together, nor while OnLoop runs. A connection is read by
// whoever has the provider's turn: who sends an order, then the goroutine that waits for
// the reply.
package handoff
