// Package sandbox takes from a process what it does not need: a provider that works for
// a decoder of the same user gets to see memory of it, and must be able to do nothing
// but compute with that.
//
// Two layers of the kernel are used. Landlock (landlock(7)) denies the file system,
// except for what the program's own file needs to be started again, and signals to other
// processes. Seccomp (seccomp(2)) allows only the system calls that computing and
// answering takes; so no sockets can be made, no memory files, no processes, no pinned
// pages (vmsplice, io_uring), and no file opened for writing, which matters for the
// memory files that the decoder sends: the kernel does not count them among the files
// that Landlock guards.
//
// # How
//
// Landlock binds one thread, and a Go program has several, with no means to reach them
// all that works in every build. Enter restricts the thread that it runs on, has that
// execute the program once more, and the kernel replaces all others with it: what starts
// anew is restricted as a whole, with or without cgo. Everything that has to be opened
// is opened before and inherited. When the program has found its feet it calls
// State.Lock, which also takes away what only starting needed, executing and opening
// files.
//
// A kernel that lacks a layer leaves the process with less protection: State says what
// it has and what is missing. It knows nothing of what the process does.
package sandbox
