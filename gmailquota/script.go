package gmailquota

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed script.lua
var scriptText string

const (
	layout     = "1" // of the stored states; script.lua describes it
	idLen      = 12
	recordLen  = idLen + 16 + 3
	maxBatched = 999 // calls in one record
)

// encode writes a state as the script does.
func (u *userState) encode() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %d %d %d %d %d|", layout, u.fullAt, u.end, u.strikes, u.cap, u.capAt, u.live)
	for _, r := range u.records {
		fmt.Fprintf(&b, "%s%016d%03d", r.id, r.at, r.n)
	}
	return b.String()
}

func (p *projectState) encode() string {
	return fmt.Sprintf("%s %d %d %d %d", layout, p.fullAt, p.born, p.end, p.strikes)
}

// parseUser reads what encode wrote; ok is false for anything else.
func parseUser(s string) (u userState, ok bool) {
	head, records, found := strings.Cut(s, "|")
	var n [6]int64
	if !found || !parseInts(head, n[:]) || len(records)%recordLen != 0 {
		return u, false
	}
	u = userState{fullAt: n[0], penalty: penalty{n[1], n[2]}, cap: n[3], capAt: n[4], live: n[5]}
	for ; records != ""; records = records[recordLen:] {
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
	var n [4]int64
	if !parseInts(s, n[:]) {
		return p, false
	}
	return projectState{fullAt: n[0], born: n[1], penalty: penalty{n[2], n[3]}}, true
}

// parseInts reads the layout's mark and then exactly len(out) numbers.
func parseInts(s string, out []int64) bool {
	fields := strings.Fields(s)
	if len(fields) != len(out)+1 || fields[0] != layout {
		return false
	}
	for i, f := range fields[1:] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || v < 0 {
			return false
		}
		out[i] = v
	}
	return true
}
