package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// purpose says what a listener is for: pushes are intake and end first, figures are shown to the end.
type purpose string

const (
	servesPush   purpose = "push"
	servesStatus purpose = "status"
)

// Times of the listeners. A push and a scrape are small; the client is Pub/Sub or on the operator's network.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
)

type httpServer struct {
	purpose purpose
	server  *http.Server
	ended   chan error
}

// listen opens the push endpoint and the status listener, as far as they are configured.
func (w *Worker) listen(ctx context.Context) error {
	if w.push != nil {
		l := w.pushListener
		if l == nil {
			var err error
			if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", w.cfg.Push.Listen); err != nil {
				return fmt.Errorf("push.listen: %w", err)
			}
		}
		w.serve(servesPush, l, w.push)
	}
	if addr := w.cfg.Status.Listen; addr != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("status.listen: %w", err)
		}
		w.serve(servesStatus, l, w.statusHandler())
	}
	return nil
}

func (w *Worker) serve(p purpose, l net.Listener, h http.Handler) {
	s := &httpServer{purpose: p, ended: make(chan error, 1), server: &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: zap.NewStdLog(w.log),
	}}
	go func() {
		err := s.server.Serve(l)
		if !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("listener ended; restart the worker", zap.String("for", string(p)), zap.Error(err))
		}
		s.ended <- err
	}()
	w.servers = append(w.servers, s)
	w.log.Info("listening", zap.String("for", string(p)), zap.String("on", l.Addr().String()))
}

// closeServers ends the listeners of one purpose; requests under way may end until ctx does.
func (w *Worker) closeServers(ctx context.Context, p purpose) error {
	var errs []error
	for _, s := range w.servers {
		if s.purpose != p {
			continue
		}
		if err := s.server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s listener: %w", p, err), s.server.Close())
		}
		if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, fmt.Errorf("%s listener: %w", p, err))
		}
	}
	return errors.Join(errs...)
}
