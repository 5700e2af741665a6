package configs

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Error is one setting that is not allowed. Its text is one line and holds no secret.
type Error struct {
	Key     string // "guard.userLimit"
	Value   string // as it was written; secrets are hidden
	Problem string // why it is not allowed, where Allowed alone does not say it; may be empty
	Allowed string // what is
	Where   string // "gmailsync.yaml:12" or "environment GMAILSYNC_GUARD_USER_LIMIT"; empty if the setting came from neither
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Where != "" {
		b.WriteString(e.Where + ": ")
	}
	b.WriteString(plain(e.Key))
	if e.Value != "" {
		b.WriteString(" = " + e.Value)
	}
	b.WriteString(": ")
	if e.Problem != "" {
		b.WriteString(e.Problem + "; ")
	}
	b.WriteString("allowed: " + e.Allowed)
	return b.String()
}

// configFile is the Key of an Error about the file as a whole.
const configFile = "configuration file"

const (
	hidden   = "(hidden)"
	maxShown = 80 // bytes of a value in an error
)

var (
	secretName = regexp.MustCompile(`(?i)secret|password|token$`)
	// queryPassword is where a URL of Redis Sentinel has the password of Redis.
	queryPassword = regexp.MustCompile(`(?i)(password=)[^&\s]*`)
	plainValue    = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)
)

// shown makes the value of key fit for an error: one line, of bounded length, without secrets.
func shown(key, value string) string {
	if secretName.MatchString(key) && value != "" {
		return hidden
	}
	value = queryPassword.ReplaceAllString(hideUserinfo(value), "${1}"+hidden)
	if len(value) > maxShown {
		value = strings.ToValidUTF8(value[:maxShown], "") + "…"
	}
	return plain(value)
}

// plain quotes text that could be misread, or would break the line.
func plain(text string) string {
	if text == configFile || plainValue.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// hideUserinfo replaces the user and password of a URL, also of one that net/url cannot read.
func hideUserinfo(value string) string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		u.User = nil
		return u.Scheme + "://" + hidden + "@" + strings.TrimPrefix(u.String(), u.Scheme+"://")
	}
	scheme, rest, ok := strings.Cut(value, "://")
	if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 {
		return scheme + "://" + hidden + rest[at:]
	}
	return value
}

// nearest returns the candidate that name was most likely meant to be, or "".
func nearest(name string, candidates []string) string {
	best, bestDistance := "", len(name)/3+2 // about one slip in three letters; further away is another word
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is Levenshtein's: how many letters must be put in, left out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
