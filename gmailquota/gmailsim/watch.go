package gmailsim

import (
	"regexp"
	"slices"
	"strconv"
	"time"
)

// watch is a mailbox's users.watch.
type watch struct {
	topic   string // empty: none
	labels  []string
	exclude bool // labels are those not to be told of
	expires time.Time

	pending bool   // a notification is due
	sending bool   // a sender goroutine runs
	counts  Pushes // see Pushes
}

// watchLife is how long a watch lasts: seven days, says Google.
const watchLife = 7 * 24 * time.Hour

func (w *watch) active(now time.Time) bool { return w.topic != "" && now.Before(w.expires) }

// wants tells whether a notification is due for a record.
func (w *watch) wants(r record, now time.Time) bool {
	if !w.active(now) || len(w.labels) == 0 {
		return w.active(now)
	}
	listed := slices.ContainsFunc(slices.Concat(r.labels, r.changed), func(l string) bool { return slices.Contains(w.labels, l) })
	return listed != w.exclude
}

var topicName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)

// startWatch answers users.watch. A notification follows at once, as Gmail sends one.
func startWatch(c *call) (any, error) {
	var req struct {
		TopicName           string   `json:"topicName"`
		LabelIDs            []string `json:"labelIds"`
		LabelFilterBehavior string   `json:"labelFilterBehavior"`
		LabelFilterAction   string   `json:"labelFilterAction"`
	}
	if err := c.decode(&req); err != nil {
		return nil, err
	}
	if !topicName.MatchString(req.TopicName) {
		return nil, badRequest("Invalid topicName does not match projects/*/topics/*")
	}
	behavior := req.LabelFilterBehavior + req.LabelFilterAction
	if !slices.Contains([]string{"", "include", "INCLUDE", "exclude", "EXCLUDE"}, behavior) {
		return nil, badRequest("Invalid value at 'label_filter_behavior', %q", behavior)
	}
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkLabels(req.LabelIDs); err != nil {
		return nil, err
	}
	b.watch.topic, b.watch.labels = req.TopicName, req.LabelIDs
	b.watch.exclude = behavior == "exclude" || behavior == "EXCLUDE"
	b.watch.expires = b.now().Add(watchLife)
	b.watch.pending = true
	b.changed(b)
	return struct {
		HistoryID  string `json:"historyId"`
		Expiration string `json:"expiration"`
	}{formatID(b.historyID), strconv.FormatInt(b.watch.expires.UnixMilli(), 10)}, nil
}

func stopWatch(c *call) (any, error) {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	c.box.watch.topic, c.box.watch.pending = "", false
	return nil, nil
}
