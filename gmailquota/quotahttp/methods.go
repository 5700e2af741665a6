package quotahttp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// row is one method: its verb and its path after /gmail/v1/users/{userId}/. A segment * stands for one id.
type row struct {
	verb, path, method string
}

// rows are all methods of Gmail's discovery document; a test compares them with the one that ships with
// google.golang.org/api. Uploads have the same paths below /upload and /resumable/upload.
var rows = []row{
	{"GET", "profile", "getProfile"},
	{"POST", "stop", "stop"},
	{"POST", "watch", "watch"},

	{"POST", "drafts", "drafts.create"},
	{"DELETE", "drafts/*", "drafts.delete"},
	{"GET", "drafts/*", "drafts.get"},
	{"GET", "drafts", "drafts.list"},
	{"POST", "drafts/send", "drafts.send"},
	{"PUT", "drafts/*", "drafts.update"},

	{"GET", "history", "history.list"},

	{"POST", "labels", "labels.create"},
	{"DELETE", "labels/*", "labels.delete"},
	{"GET", "labels/*", "labels.get"},
	{"GET", "labels", "labels.list"},
	{"PATCH", "labels/*", "labels.patch"},
	{"PUT", "labels/*", "labels.update"},

	{"POST", "messages/batchDelete", "messages.batchDelete"},
	{"POST", "messages/batchModify", "messages.batchModify"},
	{"DELETE", "messages/*", "messages.delete"},
	{"GET", "messages/*", "messages.get"},
	{"POST", "messages/import", "messages.import"},
	{"POST", "messages", "messages.insert"},
	{"GET", "messages", "messages.list"},
	{"POST", "messages/*/modify", "messages.modify"},
	{"POST", "messages/send", "messages.send"},
	{"POST", "messages/*/trash", "messages.trash"},
	{"POST", "messages/*/untrash", "messages.untrash"},
	{"GET", "messages/*/attachments/*", "messages.attachments.get"},

	{"DELETE", "threads/*", "threads.delete"},
	{"GET", "threads/*", "threads.get"},
	{"GET", "threads", "threads.list"},
	{"POST", "threads/*/modify", "threads.modify"},
	{"POST", "threads/*/trash", "threads.trash"},
	{"POST", "threads/*/untrash", "threads.untrash"},

	{"GET", "settings/autoForwarding", "settings.getAutoForwarding"},
	{"GET", "settings/imap", "settings.getImap"},
	{"GET", "settings/language", "settings.getLanguage"},
	{"GET", "settings/pop", "settings.getPop"},
	{"GET", "settings/vacation", "settings.getVacation"},
	{"PUT", "settings/autoForwarding", "settings.updateAutoForwarding"},
	{"PUT", "settings/imap", "settings.updateImap"},
	{"PUT", "settings/language", "settings.updateLanguage"},
	{"PUT", "settings/pop", "settings.updatePop"},
	{"PUT", "settings/vacation", "settings.updateVacation"},

	{"POST", "settings/cse/identities", "settings.cse.identities.create"},
	{"DELETE", "settings/cse/identities/*", "settings.cse.identities.delete"},
	{"GET", "settings/cse/identities/*", "settings.cse.identities.get"},
	{"GET", "settings/cse/identities", "settings.cse.identities.list"},
	{"PATCH", "settings/cse/identities/*", "settings.cse.identities.patch"},
	{"POST", "settings/cse/keypairs", "settings.cse.keypairs.create"},
	{"POST", "settings/cse/keypairs/*:disable", "settings.cse.keypairs.disable"},
	{"POST", "settings/cse/keypairs/*:enable", "settings.cse.keypairs.enable"},
	{"GET", "settings/cse/keypairs/*", "settings.cse.keypairs.get"},
	{"GET", "settings/cse/keypairs", "settings.cse.keypairs.list"},
	{"POST", "settings/cse/keypairs/*:obliterate", "settings.cse.keypairs.obliterate"},

	{"POST", "settings/delegates", "settings.delegates.create"},
	{"DELETE", "settings/delegates/*", "settings.delegates.delete"},
	{"GET", "settings/delegates/*", "settings.delegates.get"},
	{"GET", "settings/delegates", "settings.delegates.list"},
	{"POST", "settings/filters", "settings.filters.create"},
	{"DELETE", "settings/filters/*", "settings.filters.delete"},
	{"GET", "settings/filters/*", "settings.filters.get"},
	{"GET", "settings/filters", "settings.filters.list"},
	{"POST", "settings/forwardingAddresses", "settings.forwardingAddresses.create"},
	{"DELETE", "settings/forwardingAddresses/*", "settings.forwardingAddresses.delete"},
	{"GET", "settings/forwardingAddresses/*", "settings.forwardingAddresses.get"},
	{"GET", "settings/forwardingAddresses", "settings.forwardingAddresses.list"},

	{"POST", "settings/sendAs", "settings.sendAs.create"},
	{"DELETE", "settings/sendAs/*", "settings.sendAs.delete"},
	{"GET", "settings/sendAs/*", "settings.sendAs.get"},
	{"GET", "settings/sendAs", "settings.sendAs.list"},
	{"PATCH", "settings/sendAs/*", "settings.sendAs.patch"},
	{"PUT", "settings/sendAs/*", "settings.sendAs.update"},
	{"POST", "settings/sendAs/*/verify", "settings.sendAs.verify"},
	{"DELETE", "settings/sendAs/*/smimeInfo/*", "settings.sendAs.smimeInfo.delete"},
	{"GET", "settings/sendAs/*/smimeInfo/*", "settings.sendAs.smimeInfo.get"},
	{"POST", "settings/sendAs/*/smimeInfo", "settings.sendAs.smimeInfo.insert"},
	{"GET", "settings/sendAs/*/smimeInfo", "settings.sendAs.smimeInfo.list"},
	{"POST", "settings/sendAs/*/smimeInfo/*/setDefault", "settings.sendAs.smimeInfo.setDefault"},
}

// UnknownError says that a request is no method of Gmail that has a price. It was not sent.
type UnknownError struct {
	Verb string
	Path string // what stands for ids and addresses is *, so that the error can be logged
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("quotahttp: %s %s is no known Gmail method, so it has no price and was not sent", e.Verb, e.Path)
}

// Method tells which Gmail method a request is, by its verb and path; the host does not matter. The batch endpoint is
// none: its parts are. The error is an *UnknownError.
func Method(verb string, u *url.URL) (string, error) {
	path := u.EscapedPath() // an escaped slash is part of an id
	if _, rest, ok := strings.Cut(path, "/gmail/v1/users/"); ok {
		if _, rest, ok = strings.Cut(rest, "/"); ok {
			if m := lookup(verb, rest); m != "" {
				return m, nil
			}
		}
	}
	return "", &UnknownError{verb, redact(path)}
}

// lookup prefers a literal segment to *: drafts/send is no draft's id. No two rows of a verb differ otherwise.
func lookup(verb, path string) string {
	found := ""
	for i := range rows {
		if rows[i].verb == verb && matches(rows[i].path, path) {
			found = rows[i].method
			if !strings.Contains(rows[i].path, "*") {
				break
			}
		}
	}
	return found
}

// matches compares segment by segment.
func matches(pattern, path string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, "/")
		s, srest, smore := strings.Cut(path, "/")
		if pmore != smore || !segmentMatches(p, s) {
			return false
		}
		if !pmore {
			return true
		}
		pattern, path = prest, srest
	}
}

// segmentMatches knows *, and *:verb as in keypairs/*:disable.
func segmentMatches(pattern, s string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(s) > len(suffix) && strings.HasSuffix(s, suffix)
	}
	return pattern == s
}

// words are the segments of known methods, which are no id or address.
var words = func() map[string]bool {
	w := map[string]bool{"": true, "gmail": true, "v1": true, "upload": true, "resumable": true, "batch": true}
	for _, r := range rows {
		for s := range strings.SplitSeq(r.path, "/") {
			w[s] = true
		}
	}
	return w
}()

// redact puts * for whatever may be an id or an address. What it leaves are words: of the API, or in small letters, and
// none where the user stands.
func redact(path string) string {
	segments := strings.Split(path, "/")
	user := false
	for i, s := range segments {
		if user && s != "me" || !user && !words[s] && !isWord(s) {
			segments[i] = "*"
		}
		user = s == "users"
	}
	return strings.Join(segments, "/")
}

// isWord tells what looks like a word from ids, which have digits or capitals, and from addresses.
func isWord(s string) bool {
	const longest = 20
	return len(s) <= longest && strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' }) < 0
}

// isBatch tells a request to Gmail's batch endpoint.
func isBatch(r *http.Request) bool {
	return r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/batch/gmail/v1") || strings.HasSuffix(r.URL.Path, "/batch"))
}
