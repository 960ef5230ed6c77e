// Package journal remembers on disk what purses have used and not reported yet, so
// that a mete that is started again after kill -9 reports what the dead one had not
// (design 6.4).
//
// Numbers live in files that are mapped into memory. Remembering is a store into
// memory; the kernel has it from then on, whatever becomes of the process. Only the
// loss of the machine loses what is not yet on disk: nothing is ever flushed on
// purpose.
//
// A journal is a directory. One process at a time has it, and makes files of its
// own there. Files of earlier processes stay until their use is settled, so that a
// process that is killed while it recovers loses nothing.
//
// Room for cells is allocated before it is mapped, since a store to a page that has no
// room on disk kills the process. A file system that copies on write cannot promise
// such room when it is full, and nothing helps where another program truncates the
// files or the disk fails to read.
//
// Linux and macOS are supported.
package journal
