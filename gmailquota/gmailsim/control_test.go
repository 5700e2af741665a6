package gmailsim

import (
	"fmt"
	"testing"
)

// The control interface does what the Go methods do.
func TestControlInterface(t *testing.T) {
	r := newRig(t, Config{})
	post := func(name string, body any) map[string]any {
		t.Helper()
		return decode[map[string]any](t, r.ok("POST", "/_sim/"+name, body))
	}
	bob := decode[Account](t, r.ok("POST", "/_sim/accounts", map[string]any{"address": "Bob@example.com"}))
	if bob != r.s.AddAccount("bob@example.com") {
		t.Errorf("got %+v", bob)
	}
	if list := decode[[]Account](t, r.ok("GET", "/_sim/accounts", nil)); len(list) != 2 {
		t.Errorf("accounts %v", list)
	}
	m := decode[MessageRef](t, r.ok("POST", "/_sim/deliver", map[string]any{"address": ann, "raw": mailText("a", "a@x")}))
	post("load", map[string]any{"address": bob.Address, "raw": mailText("b", "b@x"), "labels": []string{}})
	if h := post("label", map[string]any{"address": ann, "id": m.ID, "add": []string{"STARRED"}, "remove": []string{"UNREAD"}}); uint64(h["historyId"].(float64)) != r.s.HistoryID(ann) {
		t.Errorf("got %v", h)
	}
	post("trash", map[string]any{"address": ann, "id": m.ID})
	box := decode[[]Snapshot](t, r.ok("GET", "/_sim/mailbox?address="+ann, nil))
	if len(box) != 1 || fmt.Sprint(box[0].Labels) != "[STARRED TRASH]" || box[0].Raw != nil || string(box[0].Parts[0].Data) != "Hello, a@x\r\n" {
		t.Errorf("mailbox %+v", box)
	}
	if box = decode[[]Snapshot](t, r.ok("GET", "/_sim/mailbox?raw=1&address="+ann, nil)); string(box[0].Raw) != string(mailText("a", "a@x")) {
		t.Errorf("raw %q", box[0].Raw)
	}
	post("untrash", map[string]any{"address": ann, "id": m.ID})
	start := r.s.HistoryID(ann)
	post("delete", map[string]any{"address": ann, "id": m.ID})
	post("expire-history", map[string]any{"address": ann})
	r.fails(404, "notFound", "GET", fmt.Sprint("history?startHistoryId=", start), nil)

	post("faults", map[string]any{"method": "getProfile", "status": 503, "times": -1, "for_ms": 60_000, "delay_ms": 1})
	r.fails(503, "backendError", "GET", "profile", nil)
	r.ok("DELETE", "/_sim/faults", nil)
	r.ok("GET", "profile", nil)
	stats := decode[Stats](t, r.ok("GET", "/_sim/stats", nil))
	if stats.Calls["getProfile"] != 2 || stats.Faults != 1 || stats.Units != 4 || stats.MaxUserUnits60s != 4 {
		t.Errorf("stats %+v", stats)
	}
	post("revoke", map[string]any{"address": ann})
	r.fails(401, "authError", "GET", "profile", nil)
}

func TestControlInterfaceSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, Config{})
	for _, c := range []struct {
		verb, path string
		body       any
		code       int
	}{
		{"POST", "/_sim/deliver", map[string]any{"address": "nobody@example.com", "raw": "eA=="}, 400},
		{"POST", "/_sim/deliver", map[string]any{"address": ann, "raw": "eA==", "labels": []string{"NOPE"}}, 400},
		{"POST", "/_sim/deliver", map[string]any{"addr": ann}, 400},
		{"POST", "/_sim/label", map[string]any{"address": ann, "id": "1"}, 400},
		{"POST", "/_sim/trash", []byte("{"), 400},
		{"GET", "/_sim/mailbox?address=nobody@example.com", nil, 404},
	} {
		w := r.do(c.verb, c.path, c.body)
		if e := decode[struct{ Error string }](t, w.Body.Bytes()); w.Code != c.code || e.Error == "" {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}
