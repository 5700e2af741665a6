package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
)

// nameLimit is how long a file's name may become, bytes; file systems allow 255.
const nameLimit = 150

// AttachmentFolder is where SaveAttachments puts files. Nothing outside it can be written, whatever a mail names its
// attachments and whatever symbolic links lie in it. Close frees it.
type AttachmentFolder struct{ root *os.Root }

// OpenAttachmentFolder opens dir and makes it, readable by its owner only, if it is missing.
func OpenAttachmentFolder(dir string) (*AttachmentFolder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &AttachmentFolder{root}, nil
}

// Close frees the folder; the files stay.
func (f *AttachmentFolder) Close() error { return f.root.Close() }

// SavedAttachments counts what became of attachments.
type SavedAttachments struct {
	Fetched int // written, from Gmail or from the mirror
	Present int // there already
	Gone    int // the message, or the part, does not exist at Gmail any more
	Failed  int // could not be fetched; the log says why
}

// Add sums up.
func (s *SavedAttachments) Add(t SavedAttachments) {
	s.Fetched, s.Present, s.Gone, s.Failed = s.Fetched+t.Fetched, s.Present+t.Present, s.Gone+t.Gone, s.Failed+t.Failed
}

// SaveAttachments writes a mirrored message's attachments to the folder, as <message id>/<part id>-<name>, and sets each
// one's File. What is there already is not fetched again: a file has its name only once it is whole. Each fetch is
// charged as class maintenance, 20 units for the message and 20 for each attachment, and waits where the guard says so.
// An attachment that cannot be had is counted and keeps none of the others; the error is one of the folder, of the
// account, or the end of ctx.
func (m *Mirror) SaveAttachments(ctx context.Context, account string, msg *Message, f *AttachmentFolder) (SavedAttachments, error) {
	s := saving{Mirror: m, ctx: ctx, account: account, message: msg.ID}
	for i := range msg.Attachments {
		a := &msg.Attachments[i]
		name := path.Join(safeID(msg.ID), safeID(a.PartID)+"-"+safeName(a.Filename))
		there, err := f.has(name)
		if err != nil {
			return s.count, err
		}
		if !there {
			data, ok, err := s.fetch(msg, a.PartID)
			if err != nil {
				return s.count, err
			}
			if !ok {
				continue
			}
			if err := f.write(name, data); err != nil {
				return s.count, err
			}
			s.count.Fetched++
		} else {
			s.count.Present++
		}
		a.File = name
	}
	return s.count, nil
}

// saving is the saving of one message's attachments.
type saving struct {
	*Mirror
	ctx              context.Context
	account, message string
	parts            []gmailapi.Part // as Gmail has them now, once asked
	asked            error           // what asking for them failed with
	count            SavedAttachments
}

// fetch returns a part's bytes; ok is false if they cannot be had, which is counted.
func (s *saving) fetch(msg *Message, partID string) (data []byte, ok bool, err error) {
	for _, p := range msg.Parts {
		if p.PartID == partID && !p.OnDemand {
			return p.Data, true, nil
		}
	}
	data, err = s.ask(partID)
	switch fault := consumers.FaultOf(err); {
	case err == nil:
		return data, true, nil
	case s.ctx.Err() != nil || fault == consumers.AccountFault:
		return nil, false, err
	case fault == consumers.Gone:
		s.count.Gone++
	default:
		s.count.Failed++
		s.log.Error("attachment not fetched", zap.String("account", consumers.ShortID(s.account)),
			zap.String("message", s.message), zap.String("part", partID), zap.Error(err))
	}
	return nil, false, nil
}

// ask fetches from Gmail. The message is asked for once: an attachment's id is good for the moment only.
func (s *saving) ask(partID string) ([]byte, error) {
	if s.parts == nil && s.asked == nil {
		s.parts, s.asked = insist(s.ctx, func() ([]gmailapi.Part, error) { return s.gmail.FetchParts(s.ctx, s.account, s.message) })
	}
	if s.asked != nil {
		return nil, s.asked
	}
	for _, p := range s.parts {
		switch {
		case p.PartID != partID:
		case p.AttachmentID == "":
			return p.Data, nil
		default:
			return insist(s.ctx, func() ([]byte, error) { return s.gmail.Content(s.ctx, s.account, s.message, p.AttachmentID, p.Size) })
		}
	}
	return nil, &consumers.MailboxError{Op: "messages.attachments.get", Fault: consumers.Gone, Reason: "no such part"}
}

// has tells whether the file is there, which is to say: whole.
func (f *AttachmentFolder) has(name string) (bool, error) {
	info, err := f.root.Lstat(filepath.FromSlash(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s is in the way: it is no file", name)
	}
	return err == nil, err
}

// write gives the file its name when all of it is on the disk. A crash leaves a .part file, which the next write of the
// same attachment replaces.
func (f *AttachmentFolder) write(name string, data []byte) error {
	name = filepath.FromSlash(name)
	if err := f.root.Mkdir(filepath.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	part := name + ".part"
	if err := f.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.root.Rename(part, name)
}

var plainID = regexp.MustCompile(`^[0-9A-Za-z_-][0-9A-Za-z._-]{0,99}$`)

// safeID is an id as part of a file's name, another one for each id. Gmail's are hex digits, and part ids such as 0.1.
func safeID(id string) string {
	if plainID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "%" + hex.EncodeToString(sum[:16]) // no plain id has a percent sign
}

// safeName is what a mail calls its attachment, without what any file system takes for something else. The part id
// before it makes it unique in its folder.
func safeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	if ext := path.Ext(name); len(name) > nameLimit && len(ext) < 20 {
		name = cutText(strings.TrimSuffix(name, ext), nameLimit-len(ext)) + ext
	}
	name = strings.TrimRight(cutText(name, nameLimit), ". ") // Windows drops them
	if strings.HasSuffix(name, ".part") {
		name += "_" // not the name of a file that is being written
	}
	if name == "" {
		return "attachment"
	}
	return name
}

// cutText keeps at most n bytes, and no half characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
