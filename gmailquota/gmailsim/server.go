package gmailsim

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// Config says how the simulated Gmail behaves. The zero value is a Gmail without limits.
type Config struct {
	PriceList    string // 2026-05 (also if empty) or legacy
	UserLimit    int64  // units a minute for a user; 0 = unlimited
	ProjectLimit int64  // units a minute for the project; 0 = unlimited
	Metering     string // how a minute is measured: sliding (also if empty), fixed or bucket
	InFlight     int    // calls of one user at a time; 0 = no ceiling. About 50 is reported for Gmail.

	Latency          time.Duration // added to each Gmail call
	TokenTTL         time.Duration // of access tokens; 0 = one hour
	InlineLimit      int           // a text part above so many bytes has an attachment id instead of data; 0 = 128 KiB
	HistoryRetention time.Duration // older history is forgotten; 0 = never, but see ExpireHistory
	EmptyPages       int           // every n-th page of a list is empty but for its token, n >= 2; 0 = none

	Push                   []PushTarget
	ClientID, ClientSecret string // of the only OAuth client accepted; empty = any

	// Publish, if set, gets each notification as well: data is what Gmail publishes on the topic of users.watch. An
	// error is retried like a failed push.
	Publish func(ctx context.Context, topic string, data []byte) error

	Now func() time.Time // the meter's, the tokens' and the mailboxes' clock; nil = time.Now
}

// PushTarget is a push subscription.
type PushTarget struct {
	URL            string
	Audience       string // of the signed token; empty = URL
	ServiceAccount string // email in the signed token; empty = DefaultServiceAccount
	Unwrapped      bool   // post the data itself, with the metadata in headers
}

// DefaultServiceAccount signs push notifications for targets that name none.
const DefaultServiceAccount = "push@gmailsim.iam.gserviceaccount.com"

// Account is a mailbox and the grant to use it.
type Account struct {
	Address      string `json:"address"`
	Sub          string `json:"sub"` // the stable id that Google's ID tokens carry
	RefreshToken string `json:"refresh_token"`
}

// Server is a simulated Gmail. All methods are safe for concurrent use. Methods that take an address return an error
// for one that was not added.
type Server struct {
	cfg      Config
	prices   map[string]int64
	meter    *meter
	contents contentStore
	secret   [32]byte // makes attachment ids
	nonce    atomic.Uint64
	pages    atomic.Int64
	faults   faults
	client   *http.Client // for push notifications
	tokens   tokens

	mu      sync.RWMutex
	byAddr  map[string]*mailbox
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	senders sync.WaitGroup
}

// New returns a server without accounts. Close ends it.
func New(cfg Config) (*Server, error) {
	if cfg.PriceList == "" {
		cfg.PriceList = "2026-05"
	}
	if cfg.Metering == "" {
		cfg.Metering = meterSliding
	}
	if cfg.TokenTTL == 0 {
		cfg.TokenTTL = time.Hour
	}
	if cfg.InlineLimit == 0 {
		cfg.InlineLimit = 128 << 10
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	prices, err := priceList(cfg.PriceList)
	if err != nil {
		return nil, err
	}
	m, err := newMeter(cfg, cfg.Now)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, prices: prices, meter: m, byAddr: map[string]*mailbox{}}
	s.contents.m = map[contentKey]weak.Pointer[content]{}
	s.tokens.m = map[string]accessToken{}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second}}
	_, _ = rand.Read(s.secret[:]) // never fails, says crypto/rand
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func (cfg Config) check() error {
	for name, n := range map[string]int64{
		"UserLimit": cfg.UserLimit, "ProjectLimit": cfg.ProjectLimit, "InFlight": int64(cfg.InFlight),
		"Latency": int64(cfg.Latency), "TokenTTL": int64(cfg.TokenTTL), "InlineLimit": int64(cfg.InlineLimit),
		"HistoryRetention": int64(cfg.HistoryRetention), "EmptyPages": int64(cfg.EmptyPages),
	} {
		if n < 0 {
			return fmt.Errorf("gmailsim: %s is %d: it must not be negative", name, n)
		}
	}
	if cfg.EmptyPages == 1 {
		return errors.New("gmailsim: EmptyPages is 1: no list would ever end; want 0 or at least 2")
	}
	return nil
}

// Close ends pending notifications and waits for their goroutines. The handler still answers.
func (s *Server) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.senders.Wait()
	s.client.CloseIdleConnections()
}

// Handler serves all of the simulator's paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/gmail/v1/", s.serveAPI)
	mux.HandleFunc("/upload/gmail/v1/", s.serveAPI)
	mux.HandleFunc("POST /batch/gmail/v1", s.serveBatch)
	mux.HandleFunc("POST /token", s.serveToken)
	mux.HandleFunc("GET /certs", s.serveCerts)
	s.addControl(mux)
	return mux
}

// AddAccount makes a mailbox, or returns the one there is. An account whose grant was revoked gets a new grant, as when
// its user connects again. Sub and refresh token follow from the address, so that a restarted simulator gives the same.
func (s *Server) AddAccount(address string) Account {
	key := strings.ToLower(strings.TrimSpace(address))
	s.mu.Lock()
	box := s.byAddr[key]
	if box == nil {
		box = newMailbox(key, s.cfg.Now, s.cfg.HistoryRetention, s.startSender)
		s.byAddr[key] = box
	}
	s.mu.Unlock()
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.grants == 0 || box.revoked {
		box.grants++
		box.revoked = false
		box.refreshToken = refreshToken(box.address, box.grants)
	}
	return box.account()
}

func (b *mailbox) account() Account {
	return Account{Address: b.address, Sub: b.sub, RefreshToken: b.refreshToken}
}

// Accounts returns all accounts, by address.
func (s *Server) Accounts() []Account {
	var list []Account
	for _, box := range s.boxes() {
		box.mu.Lock()
		list = append(list, box.account())
		box.mu.Unlock()
	}
	return list
}

func (s *Server) boxes() []*mailbox {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*mailbox, 0, len(s.byAddr))
	for _, box := range s.byAddr {
		list = append(list, box)
	}
	slices.SortFunc(list, func(a, b *mailbox) int { return strings.Compare(a.address, b.address) })
	return list
}

func (s *Server) box(address string) (*mailbox, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if box := s.byAddr[strings.ToLower(strings.TrimSpace(address))]; box != nil {
		return box, nil
	}
	return nil, errors.New("gmailsim: no such account: add it first")
}

// subject makes a Google account id: 21 digits, the first a 1.
func subject(address string) string {
	sum := sha256.Sum256([]byte("sub " + address))
	n := new(big.Int).SetBytes(sum[:])
	n.Mod(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil))
	return fmt.Sprintf("1%020d", n)
}

func refreshToken(address string, grant int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "refresh %s %d", address, grant))
	return "1//0" + hex.EncodeToString(sum[:])
}
