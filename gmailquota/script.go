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
	layout     = "2" // of the stored states; script.lua describes it
	idLen      = 12
	recordLen  = idLen + 16 + 3
	maxBatched = 999 // calls in one record
)

// encode writes a state as the script does.
func (u *userState) encode() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %d %d %d %d %d %s %s %d %d|", layout, u.fullAt, u.end, u.strikes, u.cap, u.capAt, u.live,
		join(u.shares), join(u.lines), u.fair, u.epoch)
	for _, r := range u.records {
		fmt.Fprintf(&b, "%s%016d%03d", r.id, r.at, r.n)
	}
	return b.String()
}

func (p *projectState) encode() string {
	return fmt.Sprintf("%s %d %d %d %d %s %s %d %d %d", layout, p.fullAt, p.born, p.end, p.strikes, join(p.shares), join(p.lines),
		p.epoch, p.users, p.previous)
}

func join(n [classes]int64) string { return fmt.Sprintf("%d %d %d", n[0], n[1], n[2]) }

// parseUser reads what encode wrote; ok is false for anything else.
func parseUser(s string) (u userState, ok bool) {
	head, records, found := strings.Cut(s, "|")
	var n [14]int64
	if !found || !parseInts(head, n[:]) || len(records)%recordLen != 0 {
		return u, false
	}
	u = userState{
		fullAt: n[0], penalty: penalty{n[1], n[2]}, cap: n[3], capAt: n[4], live: n[5],
		shares: [classes]int64(n[6:9]), lines: [classes]int64(n[9:12]), fair: n[12], epoch: n[13],
	}
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
	var n [13]int64
	if !parseInts(s, n[:]) {
		return p, false
	}
	return projectState{
		fullAt: n[0], born: n[1], penalty: penalty{n[2], n[3]}, shares: [classes]int64(n[4:7]),
		lines: [classes]int64(n[7:10]), epoch: n[10], users: n[11], previous: n[12],
	}, true
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
