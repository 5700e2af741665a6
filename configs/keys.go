package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// envPrefix begins the name of every environment variable that is a setting.
const envPrefix = "GMAILSYNC_"

// key is one setting: a field of a section of Config.
type key struct {
	section, name string // as in the file
	index         []int  // of the field, for reflect
}

func (k key) path() string { return k.section + "." + k.name }

// env is the setting's environment variable: guard.userLimit is GMAILSYNC_GUARD_USER_LIMIT.
func (k key) env() string { return envPrefix + upperSnake(k.section) + "_" + upperSnake(k.name) }

func (k key) field(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.index) }

// allKeys lists the settings in the order of Config.
var allKeys = func() []key {
	var out []key
	for _, s := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		for _, f := range reflect.VisibleFields(s.Type) {
			out = append(out, key{s.Tag.Get("yaml"), f.Tag.Get("yaml"), slices.Concat(s.Index, f.Index)})
		}
	}
	return out
}()

func keysOf(section string) []key {
	return slices.DeleteFunc(slices.Clone(allKeys), func(k key) bool { return k.section != section })
}

func sections() []string {
	var out []string
	for _, k := range allKeys {
		if !slices.Contains(out, k.section) {
			out = append(out, k.section)
		}
	}
	return out
}

// upperSnake turns tokenURL into TOKEN_URL and perUserCapacityUnits into PER_USER_CAPACITY_UNITS.
func upperSnake(s string) string {
	var b strings.Builder
	var before rune
	for _, r := range s {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
		before = r
	}
	return b.String()
}

// setText sets one field from its written form. When the text has the wrong form it returns what is allowed.
func setText(field reflect.Value, text string) (allowed string, ok bool) {
	switch v := field.Addr().Interface().(type) {
	case *string:
		*v = text
		return "", true
	case *bool:
		*v = text == "true"
		return "true or false", *v || text == "false"
	case *time.Duration:
		d, err := time.ParseDuration(text)
		*v = d
		return "a duration with its unit, such as 200ms, 30s or 5m", err == nil
	case *int:
		n, err := parseInt(text)
		*v = int(n)
		return "a whole number", err == nil && int64(int(n)) == n
	case *int64:
		n, err := parseInt(text)
		*v = n
		return "a whole number", err == nil
	case *[]string:
		*v = nil
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name != "" {
				*v = append(*v, name)
			}
		}
		return "", true
	case *map[string]int64:
		m, ok := parsePrices(text)
		*v = m
		return "method=units, separated by commas, such as threads.get=40,watch=100", ok
	}
	panic(fmt.Sprintf("configs: a setting of type %s is not read", field.Type())) // a new field of Config; every test of Load meets it
}

// parseInt reads 6000 and 6_000.
func parseInt(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
}

func parsePrices(text string) (map[string]int64, bool) {
	m := map[string]int64{}
	for pair := range strings.SplitSeq(text, ",") {
		method, units, found := strings.Cut(strings.TrimSpace(pair), "=")
		n, err := parseInt(units)
		if !found || err != nil {
			return nil, false
		}
		m[method] = n
	}
	return m, true
}
