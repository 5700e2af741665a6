package gmailsim

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// endpoint is one Gmail method.
type endpoint struct {
	verb   string
	path   string // below /gmail/v1/users/
	method string // as in the price list
	params map[string]param
	do     func(*call) (any, error) // answers []byte (JSON), a value to be marshaled, or nil for 204
	upload bool                     // also below /upload
}

// param tells whether a query parameter's value is valid.
type param func(value string) bool

func text(string) bool { return true }

func boolean(v string) bool { return v == "true" || v == "false" }

func pageSize(v string) bool {
	n, err := strconv.Atoi(v)
	return err == nil && n >= 0 && n <= 500
}

func number(v string) bool {
	_, err := strconv.ParseUint(v, 10, 64)
	return err == nil
}

func oneOf(values ...string) param {
	return func(v string) bool { return slices.Contains(values, v) }
}

// Parameters that every Google API takes.
var commonParams = map[string]param{
	"alt": oneOf("json"), "fields": text, "prettyPrint": boolean, "quotaUser": text, "key": text, "access_token": text,
	"oauth_token": text, "uploadType": oneOf("media", "multipart"), "upload_protocol": oneOf("raw", "multipart"), "$.xgafv": oneOf("1", "2"),
}

var (
	messageFormat = map[string]param{"format": oneOf("minimal", "full", "raw", "metadata"), "metadataHeaders": text}
	threadFormat  = map[string]param{"format": oneOf("minimal", "full", "metadata"), "metadataHeaders": text}
	mailList      = map[string]param{"maxResults": pageSize, "pageToken": text, "q": text, "labelIds": text, "includeSpamTrash": boolean}
	draftFormat   = map[string]param{"format": oneOf("minimal", "full", "raw", "metadata")}
	draftList     = map[string]param{"maxResults": pageSize, "pageToken": text, "q": text, "includeSpamTrash": boolean}
	historyParams = map[string]param{"maxResults": pageSize, "pageToken": text, "startHistoryId": number, "labelId": text,
		"historyTypes": oneOf("messageAdded", "messageDeleted", "labelAdded", "labelRemoved")}
	insertParams = map[string]param{"internalDateSource": oneOf("receivedTime", "dateHeader"), "deleted": boolean}
	importParams = map[string]param{"internalDateSource": oneOf("receivedTime", "dateHeader"), "deleted": boolean,
		"neverMarkSpam": boolean, "processForCalendar": boolean}
)

var endpoints = []*endpoint{
	{verb: "GET", path: "{user}/profile", method: "getProfile", do: getProfile},
	{verb: "POST", path: "{user}/watch", method: "watch", do: startWatch},
	{verb: "POST", path: "{user}/stop", method: "stop", do: stopWatch},
	{verb: "GET", path: "{user}/history", method: "history.list", params: historyParams, do: listHistory},

	{verb: "GET", path: "{user}/messages", method: "messages.list", params: mailList, do: listMessages},
	{verb: "POST", path: "{user}/messages", method: "messages.insert", params: insertParams, do: insertMessage, upload: true},
	{verb: "POST", path: "{user}/messages/import", method: "messages.import", params: importParams, do: insertMessage, upload: true},
	{verb: "POST", path: "{user}/messages/send", method: "messages.send", do: sendMessage, upload: true},
	{verb: "POST", path: "{user}/messages/batchModify", method: "messages.batchModify", do: batchModify},
	{verb: "POST", path: "{user}/messages/batchDelete", method: "messages.batchDelete", do: batchDelete},
	{verb: "GET", path: "{user}/messages/{id}", method: "messages.get", params: messageFormat, do: getMessage},
	{verb: "DELETE", path: "{user}/messages/{id}", method: "messages.delete", do: deleteMessage},
	{verb: "POST", path: "{user}/messages/{id}/modify", method: "messages.modify", do: modifyMessage},
	{verb: "POST", path: "{user}/messages/{id}/trash", method: "messages.trash", do: onMessage((*mailbox).trash)},
	{verb: "POST", path: "{user}/messages/{id}/untrash", method: "messages.untrash", do: onMessage((*mailbox).untrash)},
	{verb: "GET", path: "{user}/messages/{id}/attachments/{attachment}", method: "messages.attachments.get", do: getAttachment},

	{verb: "GET", path: "{user}/threads", method: "threads.list", params: mailList, do: listThreads},
	{verb: "GET", path: "{user}/threads/{id}", method: "threads.get", params: threadFormat, do: getThread},
	{verb: "DELETE", path: "{user}/threads/{id}", method: "threads.delete", do: deleteThread},
	{verb: "POST", path: "{user}/threads/{id}/modify", method: "threads.modify", do: modifyThread},
	{verb: "POST", path: "{user}/threads/{id}/trash", method: "threads.trash", do: onThread((*mailbox).trash)},
	{verb: "POST", path: "{user}/threads/{id}/untrash", method: "threads.untrash", do: onThread((*mailbox).untrash)},

	{verb: "GET", path: "{user}/labels", method: "labels.list", do: listLabels},
	{verb: "POST", path: "{user}/labels", method: "labels.create", do: createLabel},
	{verb: "GET", path: "{user}/labels/{id}", method: "labels.get", do: getLabel},
	{verb: "PUT", path: "{user}/labels/{id}", method: "labels.update", do: updateLabel},
	{verb: "PATCH", path: "{user}/labels/{id}", method: "labels.patch", do: updateLabel},
	{verb: "DELETE", path: "{user}/labels/{id}", method: "labels.delete", do: deleteLabel},

	{verb: "GET", path: "{user}/drafts", method: "drafts.list", params: draftList, do: listDrafts},
	{verb: "POST", path: "{user}/drafts", method: "drafts.create", do: createDraft, upload: true},
	{verb: "POST", path: "{user}/drafts/send", method: "drafts.send", do: sendDraft},
	{verb: "GET", path: "{user}/drafts/{id}", method: "drafts.get", params: draftFormat, do: getDraft},
	{verb: "PUT", path: "{user}/drafts/{id}", method: "drafts.update", do: updateDraft, upload: true},
	{verb: "DELETE", path: "{user}/drafts/{id}", method: "drafts.delete", do: deleteDraft},
}

// route finds the endpoint of a request and the path's variables.
func route(verb, path string) (to *endpoint, ids map[string]string, upload bool) {
	path, upload = strings.CutPrefix(path, "/upload")
	path, ok := strings.CutPrefix(path, "/gmail/v1/users/")
	if !ok {
		return nil, nil, false
	}
	segments := strings.Split(path, "/")
	for _, e := range endpoints {
		if e.verb != verb || upload && !e.upload {
			continue
		}
		if ids, ok := matchPath(e.path, segments); ok {
			return e, ids, upload
		}
	}
	return nil, nil, false
}

// matchPath compares a pattern with a path, literally but for variables in braces.
func matchPath(pattern string, segments []string) (map[string]string, bool) {
	if strings.Count(pattern, "/") != len(segments)-1 {
		return nil, false
	}
	ids := make(map[string]string, 3)
	i := 0
	for want := range strings.SplitSeq(pattern, "/") {
		name, variable := strings.CutPrefix(want, "{")
		switch {
		case variable && segments[i] != "":
			ids[strings.TrimSuffix(name, "}")] = segments[i]
		case want != segments[i]:
			return nil, false
		}
		i++
	}
	return ids, true
}

// check refuses unknown query parameters and bad values, as Google's front end does.
func (e *endpoint) check(query url.Values) error {
	for name, values := range query {
		valid := e.params[name]
		if valid == nil {
			valid = commonParams[name]
		}
		if valid == nil {
			return badRequest("Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. "+
				"Field '%s' could not be found in request message.", name, name)
		}
		for _, v := range values {
			if !valid(v) {
				return badRequest("Invalid value at '%s', %q", name, v)
			}
		}
	}
	return nil
}

// checkIDs refuses ids that Gmail cannot have given out. Label, draft and attachment ids are only looked up.
func (e *endpoint) checkIDs(ids map[string]string) error {
	id, ok := ids["id"]
	if !ok || !strings.HasPrefix(e.method, "messages.") && !strings.HasPrefix(e.method, "threads.") {
		return nil
	}
	if !validID(id) {
		return badRequest("Invalid id value")
	}
	return nil
}

// validID tells whether an id has the form of a message or thread id: lower-case hex below 2^63.
func validID(id string) bool {
	n, err := strconv.ParseUint(id, 16, 63)
	return err == nil && n > 0 && len(id) <= 16 && id == strings.ToLower(id) && id[0] != '+'
}
