package configs

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a changed file must stay as it is before it is read: an editor may write it in pieces, or
	// remove it for a moment. It also bounds how often the file is looked at while others write in its directory.
	settle = 100 * time.Millisecond
	// recheck bounds how late a change is seen that no event tells of: on a network drive, after an overflow of the
	// event queue, or when a directory further up is a link that now points elsewhere.
	recheck = time.Second
)

// Watch reads the file at path as Load does, calls onChange with the result, and again each time the content has
// changed and is allowed, within 2 s, until ctx ends; it returns only then, and with the cause. A file that is missing or not allowed goes to
// onError, once for each content, and the settings handed out before stay the valid ones. The first call of onChange or
// onError comes at once, so that no change between a caller's own Load and Watch is lost. Both are called from the
// goroutine of Watch, never at the same time.
func Watch(ctx context.Context, path string, onChange func(Config), onError func(error)) error {
	var events chan fsnotify.Event
	var errs chan error
	if source, err := eventSource(path); err == nil {
		events, errs = source.Events, source.Errors
		defer func() { _ = source.Close() }()
	} // else the system's limit of watches is used up, and the recheck alone finds the changes
	w := watched{path: path, onChange: onChange, onError: onError, seen: snapshot(path)}
	w.read()

	tick := time.NewTicker(recheck)
	defer tick.Stop()
	look, waiting := time.NewTimer(settle), true
	defer look.Stop()
	for {
		happened := true
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-events:
		case <-errs: //nolint:errcheck // an error, such as an overflow of the event queue, is one more reason to look
		case <-tick.C:
		case <-look.C:
			waiting = false
			happened = !w.look()
		}
		if happened && !waiting {
			look.Reset(settle)
			waiting = true
		}
	}
}

// content is a file as it was at one moment; two are equal if a reader could not tell them apart.
type content struct{ data, err string }

func snapshot(path string) content {
	data, err := os.ReadFile(path)
	if err != nil {
		return content{err: err.Error()}
	}
	return content{data: string(data)}
}

type watched struct {
	path     string
	onChange func(Config)
	onError  func(error)
	seen     content // what was seen last
	done     content // what was last handed to onChange or onError
}

// look reports whether the content has settled; new content that has is read.
func (w *watched) look() (settled bool) {
	now := snapshot(w.path)
	if now != w.seen {
		w.seen = now
		return false
	}
	if now != w.done {
		w.read()
	}
	return true
}

func (w *watched) read() {
	w.done = w.seen
	c, err := Load(w.path)
	if err != nil {
		w.onError(err)
		return
	}
	w.onChange(c)
}

// eventSource tells of changes in the directory of the file and in that of the file it may be a link to. The
// directory, and not the file: Kubernetes and many editors put another file in its place.
func eventSource(path string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	dirs := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range dirs {
		_ = watcher.Add(dir) // a directory that cannot be watched is covered by the recheck
	}
	return watcher, nil
}
