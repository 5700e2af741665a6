package configs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must come; Watch promises 2 s on a machine that is not busy.
const patience = 30 * time.Second

// seen is what Watch handed out.
type seen struct {
	config Config
	err    error
}

// watch runs Watch until the test ends and returns what it hands out, without the first, which must be allowed.
func watch(t *testing.T, path string) <-chan seen {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan seen, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := Watch(ctx, path, func(c Config) { out <- seen{config: c} }, func(err error) { out <- seen{err: err} })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	if first := next(t, out); first.err != nil {
		t.Fatal(first.err)
	}
	return out
}

func next(t *testing.T, out <-chan seen) seen {
	t.Helper()
	select {
	case s := <-out:
		return s
	case <-time.After(patience):
		t.Fatal("nothing was handed out")
		return seen{}
	}
}

// wantFailOpen waits for the value. What comes before is passed over: on a machine so busy that an edit's steps are far
// apart, the state between them is handed out too.
func wantFailOpen(t *testing.T, out <-chan seen, want bool) {
	t.Helper()
	for s := next(t, out); s.err != nil || s.config.Guard.FailOpen != want; {
		s = next(t, out)
	}
}

func failOpen(v bool) string { return fmt.Sprintf("guard:\n  failOpen: %v\n", v) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatchSeesEveryKindOfEdit changes failOpen to false and back, each time in the same way.
func TestWatchSeesEveryKindOfEdit(t *testing.T) {
	for _, test := range []struct {
		name  string
		setUp func(t *testing.T, dir string) (path string)
		edit  func(t *testing.T, dir, text string, n int)
	}{
		{"written in place", plainFile, func(t *testing.T, dir, text string, _ int) {
			put(t, filepath.Join(dir, "c.yaml"), text)
		}},
		{"written in pieces", plainFile, func(t *testing.T, dir, text string, _ int) {
			f, err := os.OpenFile(filepath.Join(dir, "c.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
			do(t, err)
			for _, b := range []byte(text) {
				_, err := f.Write([]byte{b})
				do(t, err)
			}
			do(t, f.Close())
		}},
		{"an editor that renames a new file over it", plainFile, func(t *testing.T, dir, text string, _ int) {
			put(t, filepath.Join(dir, "c.yaml.tmp"), text)
			do(t, os.Rename(filepath.Join(dir, "c.yaml.tmp"), filepath.Join(dir, "c.yaml")))
		}},
		{"an editor that moves it away as a backup", plainFile, func(t *testing.T, dir, text string, _ int) {
			do(t, os.Rename(filepath.Join(dir, "c.yaml"), filepath.Join(dir, "c.yaml~")))
			put(t, filepath.Join(dir, "c.yaml"), text)
		}},
		{"a ConfigMap of Kubernetes", configMap, func(t *testing.T, dir, text string, n int) {
			swapConfigMap(t, dir, text, n)
		}},
		{"a link to a file elsewhere", linkedFile, func(t *testing.T, dir, text string, _ int) {
			put(t, filepath.Join(dir, "elsewhere", "c.yaml"), text)
		}},
		{"a directory further up that is swapped", linkedDir, func(t *testing.T, dir, text string, n int) {
			release := filepath.Join(dir, fmt.Sprint("release-", n))
			do(t, os.Mkdir(release, 0o700))
			put(t, filepath.Join(release, "c.yaml"), text)
			do(t, os.Symlink(release, filepath.Join(dir, "new")))
			do(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "current")))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out := watch(t, test.setUp(t, dir))
			for n, v := range []bool{false, true, false} {
				test.edit(t, dir, failOpen(v), n+1)
				wantFailOpen(t, out, v)
			}
		})
	}
}

func plainFile(t *testing.T, dir string) string {
	path := filepath.Join(dir, "c.yaml")
	put(t, path, failOpen(true))
	return path
}

// configMap lays the directory out as the kubelet does: c.yaml is a link into ..data, a link to a directory of its own
// for each version.
func configMap(t *testing.T, dir string) string {
	swapConfigMap(t, dir, failOpen(true), 0)
	do(t, os.Symlink(filepath.Join("..data", "c.yaml"), filepath.Join(dir, "c.yaml")))
	return filepath.Join(dir, "c.yaml")
}

func swapConfigMap(t *testing.T, dir, text string, n int) {
	version := fmt.Sprintf("..2026_11_30_02_00_%02d", n)
	do(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	put(t, filepath.Join(dir, version, "c.yaml"), text)
	do(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	do(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if n > 0 {
		do(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_11_30_02_00_%02d", n-1))))
	}
}

func linkedFile(t *testing.T, dir string) string {
	do(t, os.Mkdir(filepath.Join(dir, "elsewhere"), 0o700))
	do(t, os.Mkdir(filepath.Join(dir, "here"), 0o700))
	target := plainFile(t, filepath.Join(dir, "elsewhere"))
	do(t, os.Symlink(target, filepath.Join(dir, "here", "c.yaml")))
	return filepath.Join(dir, "here", "c.yaml")
}

func linkedDir(t *testing.T, dir string) string {
	do(t, os.Mkdir(filepath.Join(dir, "release-0"), 0o700))
	plainFile(t, filepath.Join(dir, "release-0"))
	do(t, os.Symlink(filepath.Join(dir, "release-0"), filepath.Join(dir, "current")))
	return filepath.Join(dir, "current", "c.yaml")
}

func TestBrokenEditIsReportedOnceAndHandsNothingOut(t *testing.T) {
	dir := t.TempDir()
	path := plainFile(t, dir)
	out := watch(t, path)

	put(t, path, "guard:\n  failOpen: maybe\n")
	wantError(t, next(t, out).err, "guard.failOpen", path+":2", "maybe")
	put(t, filepath.Join(dir, "other"), "an event in the same directory reports nothing again")
	put(t, path, failOpen(false))
	wantFailOpen(t, out, false)
}

func TestRemovedFileIsReportedAndItsReturnSeen(t *testing.T) {
	path := plainFile(t, t.TempDir())
	out := watch(t, path)
	do(t, os.Remove(path))
	wantError(t, next(t, out).err, "configuration file", "no such file")
	put(t, path, failOpen(false))
	wantFailOpen(t, out, false)
}

func TestFileThatIsBrokenAtTheStartIsReportedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	err := Watch(ctx, filepath.Join(t.TempDir(), "none.yaml"),
		func(Config) { t.Error("settings out of nothing") },
		func(err error) { got = append(got, err.Error()); cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if len(got) != 1 || !strings.Contains(got[0], "no such file") {
		t.Errorf("got %q", got)
	}
}

// TestOtherFilesHandNothingOut: a database in the same directory is written all the time.
func TestOtherFilesHandNothingOut(t *testing.T) {
	dir := t.TempDir()
	path := plainFile(t, dir)
	out := watch(t, path)
	for i := range 500 {
		put(t, filepath.Join(dir, "gmailsync.db-wal"), fmt.Sprint(i))
	}
	put(t, filepath.Join(dir, "new"), failOpen(false))
	do(t, os.Rename(filepath.Join(dir, "new"), path))
	if s := next(t, out); s.err != nil || s.config.Guard.FailOpen {
		t.Errorf("handed out for other files in the directory: %+v", s)
	}
}

func TestHalfWrittenFileIsNotHandedOut(t *testing.T) {
	path := plainFile(t, t.TempDir())
	var got []bool
	w := watched{
		path: path, seen: snapshot(path), done: snapshot(path),
		onChange: func(c Config) { got = append(got, c.Guard.FailOpen) },
		onError:  func(err error) { t.Error(err) },
	}
	for _, half := range []string{"guard:", "guard:\n  failOpen: fa", failOpen(false)} {
		put(t, path, half)
		if w.look() {
			t.Errorf("%q counts as settled although it has just changed", half)
		}
	}
	for range 2 {
		if !w.look() {
			t.Error("the file has not settled although nobody writes it")
		}
	}
	if len(got) != 1 || got[0] {
		t.Errorf("handed out failOpen %v, want false, once", got)
	}
}
