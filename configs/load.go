package configs

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"unicode/utf8"
)

// Load reads the YAML file at path, then the environment (GMAILSYNC_<SECTION>_<KEY>, which wins), fills in what neither
// sets, and checks the whole. With an empty path only the environment is read. Every error is an *Error: the first
// setting that is not allowed, and where it stands.
func Load(path string) (Config, error) { return load(path, os.Environ()) }

func load(path string, environ []string) (Config, error) {
	r := reader{config: Default(), where: map[string]string{}}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return Config{}, unreadable(path, err)
		}
		if err := r.file(path, data); err != nil {
			return Config{}, err
		}
	}
	if err := r.environment(environ); err != nil {
		return Config{}, err
	}
	if err := r.check(path); err != nil {
		return Config{}, err
	}
	return r.config.Resolve(), nil
}

func unreadable(path string, err error) *Error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &Error{
		Key: configFile, Value: plain(path), Problem: err.Error(),
		Allowed: "the path of a readable YAML file, or none",
	}
}

// reader collects the settings and remembers where each was set.
type reader struct {
	config Config
	where  map[string]string // key path to Error.Where
}

func (r *reader) set(k key, text, where string) error {
	if allowed, ok := setText(k.field(&r.config), text); !ok {
		return &Error{Key: k.path(), Value: shown(k.path(), text), Allowed: allowed, Where: where}
	}
	r.where[k.path()] = where
	return nil
}

func (r *reader) check(path string) error {
	err := r.writtenZero()
	if err == nil {
		err = r.config.Validate()
	}
	var e *Error
	if errors.As(err, &e) && e.Where == "" {
		e.Where = r.where[e.Key]
		if e.Where == "" && path != "" {
			e.Where = path + " (by default)"
		}
	}
	return err
}

// writtenZero refuses a 0 that somebody wrote where the zero value means "not set": a capacity of 0 is a mistake, not
// a wish for the default.
func (r *reader) writtenZero() error {
	g := r.config.Guard
	for key, value := range map[string]int64{
		"guard.projectBurst":                g.ProjectBurst,
		"guard.perUserCapacityUnits":        g.PerUserCapacityUnits,
		"guard.perUserRefillUnitsPerMinute": g.PerUserRefillUnitsPerMinute,
	} {
		if _, written := r.where[key]; written && value == 0 {
			return &Error{Key: key, Value: "0", Allowed: "more than 0; leave the key out to have it follow from the limit and the burst"}
		}
	}
	return nil
}

func lineOf(path string, line int) string { return path + ":" + strconv.Itoa(line) }

func (r *reader) file(path string, data []byte) error {
	if !utf8.Valid(data) {
		return &Error{Key: configFile, Problem: "not UTF-8 text", Allowed: "YAML in UTF-8", Where: path}
	}
	root, err := parseYAML(path, data)
	if err != nil || root == nil {
		return err
	}
	return r.root(path, root)
}
