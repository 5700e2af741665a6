package gmailsim

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// All real mail comes out as it went in: raw to the byte, and every part of format=full decodes to the part's bytes.
func TestRealMailIsKept(t *testing.T) {
	folder := mailFolder(t)
	lists := must(ReadMail(filepath.Join(folder, "lists")))(t)
	broken := must(ReadMail(filepath.Join(folder, "mime")))(t)
	if len(lists) != 676 || len(broken) != 130 {
		t.Fatalf("read %d list messages and %d files, want 676 and 130", len(lists), len(broken))
	}
	r := newRig(t, Config{InlineLimit: 4000})
	for _, raw := range slices.Concat(lists, broken) {
		ref := must(r.s.Load(ann, raw))(t)
		m := decode[resource](t, r.ok("GET", "messages/"+ref.ID+"?format=raw", nil))
		if got, err := base64.URLEncoding.DecodeString(m.Raw); err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("raw differs: %v", err)
		}
	}
	box := r.s.Mailbox(ann)
	if len(box) != len(lists)+len(broken) {
		t.Fatalf("%d messages, want %d", len(box), len(lists)+len(broken))
	}
	for _, shot := range box {
		m := decode[resource](t, r.ok("GET", "messages/"+shot.ID, nil))
		compare(t, r, shot, m)
	}
}

// compare checks a full message against its snapshot, attachments fetched.
func compare(t *testing.T, r *rig, want Snapshot, got resource) {
	t.Helper()
	if got.ID != want.ID || got.ThreadID != want.ThreadID || !slices.Equal(got.LabelIDs, want.Labels) {
		t.Errorf("got %s %s %v, want %s %s %v", got.ID, got.ThreadID, got.LabelIDs, want.ID, want.ThreadID, want.Labels)
	}
	if !slices.Equal(got.Payload.Headers, want.Headers) {
		t.Errorf("%s: headers differ: %q, want %q", want.ID, got.Payload.Headers, want.Headers)
	}
	i := 0
	got.Payload.walk(func(p *payload) {
		w := want.Parts[i]
		i++
		data := p.Body.Data
		if p.Body.AttachmentID != "" {
			path := "messages/" + want.ID + "/attachments/" + p.Body.AttachmentID
			data = decode[struct{ Data string }](t, r.ok("GET", path, nil)).Data
		}
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(data, "="))
		if err != nil || !bytes.Equal(b, w.Data) || p.PartID != w.PartID || p.MIMEType != w.MIMEType || p.Filename != w.Filename {
			t.Errorf("%s part %q differs from %q: %v", want.ID, p.PartID, w.PartID, err)
		}
	})
	if i != len(want.Parts) {
		t.Errorf("%s: %d parts, want %d", want.ID, i, len(want.Parts))
	}
}

func TestMboxIsDividedOnlyAtRealSeparators(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.mbox")
	text := "From a at b.c  Mon Oct  1 10:00:00 2018\nFrom: a\nSubject: one\n\nText\n\n" +
		"From here on it is body text.\n\nFrom a at b.c  Mon Oct  1 10:00:00 2018 stands in a quoted line\nand no header follows\n\n" +
		"From d at e.f  Tue Oct  2 10:00:00 2018\nFrom: d\nSubject: two\n\nMore\nFrom x at y.z  Tue Oct  2 10:00:00 2018\nFrom: no blank line before\n\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mails := must(ReadMail(file))(t)
	if len(mails) != 2 || !strings.HasPrefix(string(mails[0]), "From: a\n") || !strings.HasSuffix(string(mails[1]), "no blank line before\n") {
		t.Errorf("%d messages: %q", len(mails), mails)
	}
}

func TestReadMailSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	other := filepath.Join(folder, "notes.txt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(folder, "missing"), other, folder} {
		if _, err := ReadMail(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSampleMailIsTheSameForTheSameSeed(t *testing.T) {
	a, b, c := SampleMail(300, 7), SampleMail(300, 7), SampleMail(300, 8)
	if len(a) != 300 || !slices.EqualFunc(a, b, bytes.Equal) {
		t.Error("the same seed gave different mail")
	}
	if slices.EqualFunc(a, c, bytes.Equal) {
		t.Error("another seed gave the same mail")
	}
}

// The sample has what a mailbox has: conversations, attachments, HTML without text, several encodings.
func TestSampleMailIsVaried(t *testing.T) {
	r := newRig(t, Config{})
	mails := SampleMail(1000, 1)
	for _, raw := range mails {
		must(r.s.Load(ann, raw))(t)
	}
	count := map[string]int{}
	size := map[string]int{}
	for _, shot := range r.s.Mailbox(ann) {
		size[shot.ThreadID]++
		attached := false
		for _, p := range shot.Parts {
			attached = attached || p.Filename != ""
			count[headerValue(p.Headers, "Content-Transfer-Encoding")]++
			if strings.Contains(headerValue(p.Headers, "Content-Type"), "iso-8859-1") {
				count["latin"]++
			}
		}
		if attached {
			count["attached"]++
		}
		if shot.Parts[0].MIMEType == "text/html" {
			count["html only"]++
		}
	}
	longest := 0
	for _, n := range size {
		longest = max(longest, n)
	}
	for _, kind := range []string{"7bit", "quoted-printable", "base64", "latin", "html only"} {
		if count[kind] < 20 {
			t.Errorf("only %d %s", count[kind], kind)
		}
	}
	if count["attached"] < 40 || count["attached"] > 140 {
		t.Errorf("%d of 1000 messages have attachments, want about 80", count["attached"])
	}
	if len(size) < 200 || longest < 15 {
		t.Errorf("%d threads, the longest of %d messages", len(size), longest)
	}
}

func BenchmarkThreadsGet(b *testing.B) {
	r := newRig(b, Config{})
	for _, raw := range SampleMail(2000, 1) {
		must(r.s.Load(ann, raw))(b)
	}
	var ids []string
	for id := range r.s.byAddr[ann].threads {
		ids = append(ids, id)
	}
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			for i := range b.N {
				r.do("GET", "threads/"+ids[i%len(ids)], nil, "Accept-Encoding", encoding)
			}
		})
	}
}
