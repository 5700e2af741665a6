package gmailquota

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed script.lua
var scriptSource string

// scriptText is what Redis runs: with values for the names of constants, which would be made anew in each run and handed to
// each function that uses them.
var scriptText = inline(scriptSource)

var (
	constants = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (.*)\n`)
	constant  = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
)

func inline(text string) string {
	values := map[string]string{}
	for _, m := range constants.FindAllStringSubmatch(text, -1) {
		v := strings.Split(m[2], ", ")
		for i, name := range strings.Split(m[1], ", ") {
			values[name] = v[i]
		}
	}
	return constant.ReplaceAllStringFunc(constants.ReplaceAllString(text, ""), func(name string) string {
		return cmp.Or(values[name], name)
	})
}

const (
	layout     = "2" // of the stored states; script.lua describes it
	idLen      = 12
	recordLen  = idLen + 16 + 3
	maxBatched = 999 // calls in one record
)

// encode writes a request as the script reads it: its id, what it may have in common with others, its ticket, and what rides
// on it: pauses that other buckets counted (µs from now), the ids of calls that ended, and what this process remembers of
// both buckets.
func (c *charge) encode(holdUser, holdProject int64, user, project told, released string) string {
	if user.us == 0 {
		user.born = project.born // two equal ones need no second look
	}
	if project.us == 0 {
		project.born = user.born
	}
	b := append(make([]byte, 0, 160+len(released)), c.id...)
	b = appendNumbers(b, c.calls, int64(c.class), c.units, c.user, c.project, c.near, c.far, c.share, c.patience, c.length)
	b = append(b, '|')
	if c.to > 0 {
		b = appendNumbers(b, c.from, c.to)
	}
	b = append(b, '|')
	if holdUser > 0 || holdProject > 0 {
		b = appendNumbers(b, holdUser, holdProject)
	}
	b = append(append(append(b, '|'), released...), '|')
	b = appendNumbers(b, user.born, project.born, user.us, project.us)
	return string(b)
}

// appendNumbers writes each with a space before it.
func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	return b
}

// encode writes a state as the script does.
func (u *userState) encode() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %d %d|%s|%s|%s|%s|", layout, u.fullAt, u.live, u.epoch,
		group(u.end, u.strikes, u.rate, u.rateAt, u.ceiling, u.cap, u.capAt), group(u.shares[:]...), group(u.lines[:]...),
		group(u.fair, u.parts[0], u.parts[1], u.parts[2]))
	for _, r := range u.records {
		fmt.Fprintf(&b, "%s%016d%03d", r.id, r.at, r.n)
	}
	return b.String()
}

func (p *projectState) encode() string {
	return fmt.Sprintf("%s %d %d %d %d %d %d %d|%s|%s|%s", layout, p.fullAt, p.born, p.epoch, p.users, p.previous, p.day, p.used,
		group(p.end, p.strikes, p.rate, p.rateAt, p.ceiling), group(p.shares[:]...), group(p.lines[:]...))
}

// group writes numbers that are mostly zeros: then it is empty.
func group(numbers ...int64) string {
	text, some := make([]string, len(numbers)), false
	for i, n := range numbers {
		text[i] = strconv.FormatInt(n, 10)
		some = some || n != 0
	}
	if !some {
		return ""
	}
	return strings.Join(text, " ")
}

// parseUser reads what encode wrote; ok is false for anything else.
func parseUser(s string) (u userState, ok bool) {
	groups := strings.Split(s, "|")
	var n, parts [4]int64
	var pause [7]int64
	if len(groups) != 6 || !parseHead(groups[0], n[:]) || !parseGroup(groups[1], pause[:]) || !parseGroup(groups[2], u.shares[:]) ||
		!parseGroup(groups[3], u.lines[:]) || !parseGroup(groups[4], parts[:]) || len(groups[5])%recordLen != 0 {
		return userState{}, false
	}
	u.fullAt, u.live, u.epoch = n[1], n[2], n[3]
	u.fair, u.parts = parts[0], [classes]int64(parts[1:])
	u.penalty, u.cap, u.capAt = pauseOf(pause[:]), pause[5], pause[6]
	for records := groups[5]; records != ""; records = records[recordLen:] {
		at, err1 := strconv.ParseInt(records[idLen:idLen+16], 10, 64)
		calls, err2 := strconv.ParseInt(records[idLen+16:recordLen], 10, 64)
		if err1 != nil || err2 != nil {
			return userState{}, false
		}
		u.records = append(u.records, record{records[:idLen], at, calls})
	}
	return u, true
}

func parseProject(s string) (p projectState, ok bool) {
	groups := strings.Split(s, "|")
	var n [8]int64
	var pause [5]int64
	if len(groups) != 4 || !parseHead(groups[0], n[:]) || !parseGroup(groups[1], pause[:]) || !parseGroup(groups[2], p.shares[:]) ||
		!parseGroup(groups[3], p.lines[:]) {
		return projectState{}, false
	}
	p.fullAt, p.born, p.epoch, p.users, p.previous, p.day, p.used = n[1], n[2], n[3], n[4], n[5], n[6], n[7]
	p.penalty = pauseOf(pause[:])
	return p, true
}

func pauseOf(n []int64) penalty { return penalty{n[0], n[1], learned{n[2], n[3], n[4]}} }

func parseGroup(s string, out []int64) bool { return s == "" || parseNumbers(s, out) }

// parseHead reads a head: the layout's number, and the others.
func parseHead(s string, out []int64) bool {
	return parseNumbers(s, out) && strconv.FormatInt(out[0], 10) == layout
}

// parseNumbers reads exactly len(out) numbers.
func parseNumbers(s string, out []int64) bool {
	fields := strings.Fields(s)
	if len(fields) != len(out) {
		return false
	}
	for i, f := range fields {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || v < 0 {
			return false
		}
		out[i] = v
	}
	return true
}
