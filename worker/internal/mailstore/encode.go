package mailstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gmailsync/gmailsync/consumers"
)

// historyDigits is the width of the largest unsigned 64-bit number, 18446744073709551615.
const historyDigits = 20

// HistoryText is the stored form of a history id: 20 decimal digits with leading zeros. No SQL integer holds the whole
// unsigned 64-bit range, and at a fixed width text compares as the numbers do, in every database and collation, while
// people can still read it.
func HistoryText(h consumers.HistoryID) string {
	var b [historyDigits]byte
	for i := historyDigits - 1; i >= 0; i-- {
		b[i] = byte('0' + h%10)
		h /= 10
	}
	return string(b[:])
}

// HistoryScanner reads the stored form into H; it is a sql.Scanner.
type HistoryScanner struct{ H *consumers.HistoryID }

// Scan reads HistoryText's form; NULL is zero.
func (s HistoryScanner) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.H = 0
		return nil
	case string:
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return fmt.Errorf("stored history id %q: want %d decimal digits", v, historyDigits)
		}
		*s.H = consumers.HistoryID(n)
		return nil
	default:
		return fmt.Errorf("stored history id has type %T: want text", src)
	}
}

// Millis is the stored form of a time: milliseconds since 1970 UTC, 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Time reads what Millis wrote.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// LabelText is the stored form of label ids: a JSON array, sorted, each label once.
func LabelText(labels []string) string {
	sorted := make([]string, 0, len(labels))
	for _, l := range labels {
		sorted = append(sorted, CleanText(l))
	}
	slices.Sort(sorted)
	return IDList(slices.Compact(sorted))
}

// ParseLabels reads what LabelText wrote; no labels are nil.
func ParseLabels(s string) ([]string, error) {
	var labels []string
	if err := json.Unmarshal([]byte(s), &labels); err != nil {
		return nil, fmt.Errorf("stored label ids: %w", err)
	}
	if len(labels) == 0 {
		return nil, nil
	}
	return labels, nil
}

// IDList is a JSON array of strings, the form in which statements take a list.
func IDList(ids []string) string {
	if len(ids) == 0 {
		return "[]"
	}
	b, err := json.Marshal(ids)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// CleanText makes any text storable: bytes that are no UTF-8 and NUL, which PostgreSQL refuses, become U+FFFD.
func CleanText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// CleanMessage returns m with all its text storable, and Cleaned set if anything had to be replaced. The decoder
// already delivers such text: this is the last guard, so that one bad message never fails its neighbors.
func CleanMessage(m consumers.Message) consumers.Message {
	clean := func(s *string) {
		if c := CleanText(*s); c != *s {
			*s, m.Cleaned = c, true
		}
	}
	for _, s := range []*string{&m.Snippet, &m.RFCMessageID, &m.From, &m.To, &m.Cc, &m.Subject, &m.Text, &m.HTML} {
		clean(s)
	}
	if len(m.Attachments) > 0 {
		m.Attachments = slices.Clone(m.Attachments)
	}
	for i := range m.Attachments {
		a := &m.Attachments[i]
		for _, s := range []*string{&a.PartID, &a.Filename, &a.MIMEType, &a.ContentID} {
			clean(s)
		}
	}
	return m
}
