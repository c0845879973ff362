package shm

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// CgroupMemoryLimit is the memory in bytes that the control groups of this process
// allow, the least of its own group's limit and those above it; ok is false without
// one. Objects count against it, and a process that goes beyond it is killed rather
// than refused.
func CgroupMemoryLimit() (bytes int64, ok bool) {
	return cgroupMemoryLimit(os.DirFS("/"))
}

// noCgroupLimit is where version 1 says "no limit": the largest multiple of a page in
// an int64. Nobody has that much.
const noCgroupLimit = 1 << 62

// cgroupMemoryLimit works on both versions: version 1 has a hierarchy for memory alone
// and memory.limit_in_bytes, version 2 one for all and memory.max (cgroups(7)).
func cgroupMemoryLimit(root fs.FS) (int64, bool) {
	least := int64(noCgroupLimit)
	for _, g := range cgroups(root) {
		// From the group up to the mount point: each level binds. A group path that
		// is not there (a container that sees the host's paths) is simply skipped.
		for dir := g.dir; ; dir = path.Dir(dir) {
			data, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(g.mount, dir, g.file), "/"))
			if err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
				if err == nil && n >= 0 { // "max" is no number
					least = min(least, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, least < noCgroupLimit
}

type cgroup struct {
	mount string // where its hierarchy is mounted
	dir   string // the group's directory below it, absolute
	file  string // the file with the limit
}

// cgroups finds the memory groups of this process in /proc/self/cgroup (lines of
// "ID:CONTROLLERS:PATH") and their hierarchies in /proc/self/mountinfo (proc(5)).
func cgroups(root fs.FS) []cgroup {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []cgroup
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		v2 := f[0] == "0" && f[1] == ""
		if !v2 && !contains(f[1], "memory") {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			if g, ok := cgroupAt(line, f[2], v2); ok {
				found = append(found, g)
			}
		}
	}
	return found
}

// cgroupAt tells where group is below the mount that a line of mountinfo describes; ok
// is false if that is not a mount of the right hierarchy. The line's fields are: id,
// parent, device, root within the file system, mount point, options, optional fields,
// "-", type, source, super block options.
func cgroupAt(line, group string, v2 bool) (g cgroup, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	f, super := strings.Fields(before), strings.Fields(after)
	if !ok || len(f) < 5 || len(super) < 3 {
		return cgroup{}, false
	}
	g.mount, g.file = f[4], "memory.max"
	switch {
	case v2 && super[0] == "cgroup2":
	case !v2 && super[0] == "cgroup" && contains(super[2], "memory"):
		g.file = "memory.limit_in_bytes"
	default:
		return cgroup{}, false
	}
	// A container may see only a part of the hierarchy: its root is then at mount.
	g.dir = path.Join("/", strings.TrimPrefix(group, strings.TrimSuffix(f[3], "/")))
	return g, true
}

// contains reports whether the comma-separated list has item.
func contains(list, item string) bool {
	for s := range strings.SplitSeq(list, ",") {
		if s == item {
			return true
		}
	}
	return false
}
