package push

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/gmailsync/gmailsync/consumers"
)

// notification is what Gmail tells: something changed in this mailbox, up to this history id.
type notification struct {
	address string // lower case
	noticed consumers.HistoryID
}

var errMalformed = errors.New("no notification of Gmail")

// parse reads a notification, wrapped in a Pub/Sub message or, from a subscription set so, unwrapped.
func parse(body []byte) (notification, error) {
	var wrapped struct {
		Message *struct {
			Data string `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(body, &wrapped); err != nil {
		return notification{}, errMalformed
	}
	if wrapped.Message != nil {
		data, err := base64.StdEncoding.DecodeString(wrapped.Message.Data)
		if err != nil {
			return notification{}, errMalformed
		}
		body = data
	}
	var n struct {
		Address   string          `json:"emailAddress"`
		HistoryID json.RawMessage `json:"historyId"`
	}
	if err := json.Unmarshal(body, &n); err != nil || n.Address == "" {
		return notification{}, errMalformed
	}
	// A number in a push, a string in the REST API: both are accepted, and neither goes through a float.
	noticed, err := consumers.ParseHistoryID(string(bytes.Trim(n.HistoryID, `"`)))
	if err != nil {
		return notification{}, errMalformed
	}
	return notification{address: strings.ToLower(n.Address), noticed: noticed}, nil
}
