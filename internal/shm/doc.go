// Package shm makes memory that several processes can map: anonymous memory files
// (memfd_create) with seals, read-only and read-write descriptors to the same pages,
// leases that prove nobody can write any more, huge pages, and descriptors passed over
// Unix sockets.
//
// An [Object] is one memory file behind one descriptor; a [Mapping] is one view of it.
// They are closed independently: a mapping stays valid after its object is closed, and
// the memory goes back to the kernel when the last of both, in any process, is gone.
// Memory files have no name in any file system, so that nothing is left behind by a
// process that was killed.
//
// The package is Linux only. It knows nothing of what the memory holds: no KV blocks,
// no layouts, no models.
package shm
