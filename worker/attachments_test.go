package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

// withAttachments is a mail with two attachments of one hostile name, and a third.
func withAttachments(i int) []byte {
	part := func(name, text string) string {
		return "--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=\"" + name + "\"\r\n\r\n" + text + "\r\n"
	}
	return []byte(fmt.Sprintf("From: b@example.com\r\nSubject: s\r\nMessage-ID: <a%d@example.com>\r\n", i) +
		"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n" +
		part("../../x.txt", "first") + part("../../x.txt", "second") + part("plain.bin", "third") + "--b--\r\n")
}

// exported saves the attachments of all messages and returns the files, by name, and the counts.
func (r *rig) exported(ctx context.Context, id, dir string) (map[string]string, SavedAttachments, error) {
	r.Helper()
	folder, err := OpenAttachmentFolder(dir)
	r.must(err)
	defer func() { r.must(folder.Close()) }()
	var total SavedAttachments
	err = r.worker.Mirror().EachMessage(ctx, id, func(msg Message) error {
		saved, err := r.worker.Mirror().SaveAttachments(ctx, id, &msg, folder)
		total.Add(saved)
		for _, a := range msg.Attachments {
			if a.File != "" {
				if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(a.File))); err != nil {
					r.Error(err)
				}
			}
		}
		return err
	})
	files := map[string]string{}
	r.must(filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		files[filepath.Base(p)+" "+filepath.Base(filepath.Dir(p))] = string(data)
		return err
	}))
	return files, total, err
}

func (r *rig) importedWith(mails ...[]byte) (id string, refs []gmailsim.MessageRef) {
	r.Helper()
	r.sim.AddAccount("ann@example.com")
	for _, mail := range mails {
		ref, err := r.sim.Load("ann@example.com", mail)
		r.must(err)
		refs = append(refs, ref)
	}
	r.must(r.build().Start(r.Context()))
	id = r.connect("ann@example.com")
	r.eventually("the import", func() bool { return r.status(id).Live() })
	return id, refs
}

// Whatever a mail calls its attachments, they stay in the folder and keep apart; what is there is not fetched again.
func TestAttachmentsAreSavedOnceAndInTheFolder(t *testing.T) {
	r := newRig(t)
	id, refs := r.importedWith(withAttachments(1), withAttachments(2))
	outer := t.TempDir()
	dir := filepath.Join(outer, "in", "side")
	want := map[string]string{}
	for _, ref := range refs {
		want["1-.._.._x.txt "+ref.ID], want["2-.._.._x.txt "+ref.ID], want["3-plain.bin "+ref.ID] = "first", "second", "third"
	}
	got, count, err := r.exported(t.Context(), id, dir)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || count != (SavedAttachments{Fetched: 6}) {
		t.Fatalf("%v, %+v, %v; want %v", got, count, err, want)
	}
	if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
		t.Errorf("something was written outside: %v, %v", entries, err)
	}
	before := r.sim.Stats()
	if n := before.Calls["messages.attachments.get"]; n != 6 {
		t.Errorf("%d attachments fetched, want 6", n)
	}
	// One is lost, and a crash left a part of it: only it is fetched again.
	lost := filepath.Join(dir, refs[0].ID, "3-plain.bin")
	r.must(os.Remove(lost))
	r.must(os.WriteFile(lost+".part", []byte("thi"), 0o600))
	got, count, err = r.exported(t.Context(), id, dir)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || count != (SavedAttachments{Fetched: 1, Present: 5}) {
		t.Errorf("again: %v, %+v, %v", got, count, err)
	}
	if n := r.sim.Stats().Units - before.Units; n != 40 {
		t.Errorf("fetching one again cost %d units, want 20 for the message and 20 for the part", n)
	}
	if charged := r.worker.GuardStats().Units; charged != r.sim.Stats().Units {
		t.Errorf("the guard charged %d units, Gmail counted %d", charged, r.sim.Stats().Units)
	}
}

// An attachment that cannot be had keeps none of the others; the next export fetches what is missing.
func TestAnAttachmentThatFailsKeepsNoOther(t *testing.T) {
	r := newRig(t)
	id, refs := r.importedWith(withAttachments(1), withAttachments(2))
	dir := t.TempDir()
	r.sim.AddFault(gmailsim.Fault{Method: "messages.attachments.get", Status: 400, Reason: "invalidArgument", Times: 1})
	r.sim.AddFault(gmailsim.Fault{Method: "messages.attachments.get", Status: 404, Reason: "notFound", Times: 1})
	_, count, err := r.exported(t.Context(), id, dir)
	if err != nil || count != (SavedAttachments{Fetched: 4, Gone: 1, Failed: 1}) {
		t.Errorf("%+v, %v", count, err)
	}
	_, count, err = r.exported(t.Context(), id, dir)
	if err != nil || count != (SavedAttachments{Fetched: 2, Present: 4}) {
		t.Errorf("again: %+v, %v", count, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.exported(ctx, id, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	// A symbolic link leads nowhere out of the folder.
	linked, outside := t.TempDir(), t.TempDir()
	r.must(os.Symlink(outside, filepath.Join(linked, refs[0].ID)))
	if _, _, err := r.exported(t.Context(), id, linked); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("written through a link: %v, %v", entries, err)
	}
}

func TestNamesOfAttachmentFiles(t *testing.T) {
	for name, want := range map[string]string{
		"": "attachment", "..": "attachment", "a\x00b/c\\d": "a_b_c_d", "x.part": "x.part_", "Grüße 🎉.pdf": "Grüße 🎉.pdf",
		"con.": "con", strings.Repeat("ü", 200) + ".pdf": strings.Repeat("ü", 73) + ".pdf", "a\u202egpj.exe": "a_gpj.exe",
	} {
		if got := safeName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
	for _, id := range []string{"", ".", "..", "../x", "a/b", strings.Repeat("x", 1000), "%"} {
		if got := safeID(id); path.Base(got) != got || got == ".." || got == "." || len(got) > 100 {
			t.Errorf("%q becomes %q", id, got)
		}
	}
}
