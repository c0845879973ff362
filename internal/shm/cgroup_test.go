package shm

import (
	"testing"
	"testing/fstest"
)

// The files are shortened copies of what real machines show.
func TestCgroupMemoryLimit(t *testing.T) {
	const (
		v2mount  = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		v1mount  = "35 30 0:30 / /sys/fs/cgroup/memory rw,relatime shared:15 master:3 - cgroup cgroup rw,memory\n"
		cpumount = "34 30 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		rootfs   = "23 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no cgroups", map[string]string{"proc/self/mountinfo": rootfs}, 0},
		{"no mountinfo", map[string]string{"proc/self/cgroup": "0::/\n"}, 0},
		{"v2 unlimited", map[string]string{
			"proc/self/cgroup": "0::/user.slice/a\n", "proc/self/mountinfo": rootfs + v2mount,
			"sys/fs/cgroup/user.slice/a/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.max": "max\n",
		}, 0},
		{"v2 own limit", map[string]string{
			"proc/self/cgroup": "0::/user.slice/a\n", "proc/self/mountinfo": rootfs + v2mount,
			"sys/fs/cgroup/user.slice/a/memory.max": "1073741824\n", "sys/fs/cgroup/user.slice/memory.max": "max\n",
		}, 1 << 30},
		{"v2 tighter above", map[string]string{
			"proc/self/cgroup": "0::/user.slice/a\n", "proc/self/mountinfo": rootfs + v2mount,
			"sys/fs/cgroup/user.slice/a/memory.max": "1073741824\n", "sys/fs/cgroup/user.slice/memory.max": "4096\n",
		}, 4096},
		{"v2 container with its own view", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2mount,
			"sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		{"v2 container that sees the host's path", map[string]string{
			"proc/self/cgroup":         "0::/system.slice/docker-1.scope\n",
			"proc/self/mountinfo":      "30 23 0:26 /system.slice/docker-1.scope /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"sys/fs/cgroup/memory.max": "268435456\n",
		}, 256 << 20},
		{"v1", map[string]string{
			"proc/self/cgroup": "5:cpu:/\n4:memory:/jobs/7\n0::/\n", "proc/self/mountinfo": rootfs + cpumount + v1mount,
			"sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes": "134217728\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":        "9223372036854771712\n",
		}, 128 << 20},
		{"v1 unlimited", map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "proc/self/mountinfo": v1mount,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "x\n0:/\n\n0::/../..\n", "proc/self/mountinfo": "a - b\n - \n" + v2mount,
			"sys/fs/cgroup/memory.max": "-5\n",
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, data := range c.files {
				files[name] = &fstest.MapFile{Data: []byte(data)}
			}
			got, ok := cgroupMemoryLimit(files)
			if ok != (c.want != 0) || ok && got != c.want {
				t.Errorf("%d, %v; want %d", got, ok, c.want)
			}
		})
	}
	if n, ok := CgroupMemoryLimit(); ok && n < 1<<20 {
		t.Errorf("this process may use %d bytes", n)
	}
}

func FuzzCgroup(f *testing.F) {
	f.Add("0::/a\n", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "12\n")
	f.Add("4:memory:/\n", "35 30 0:30 / /m rw shared:1 - cgroup c rw,memory\n", "max\n")
	f.Fuzz(func(t *testing.T, groups, mounts, limit string) {
		files := fstest.MapFS{
			"proc/self/cgroup":           {Data: []byte(groups)},
			"proc/self/mountinfo":        {Data: []byte(mounts)},
			"sys/fs/cgroup/memory.max":   {Data: []byte(limit)},
			"sys/fs/cgroup/a/memory.max": {Data: []byte(limit)},
		}
		if n, ok := cgroupMemoryLimit(files); ok && n < 0 {
			t.Errorf("limit %d", n)
		}
	})
}
