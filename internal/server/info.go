package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"baton/internal/api"
	"baton/internal/engine"
)

// index says what this is.
func (s *Server) index(b *backend, w *response, _ *http.Request) *api.Error {
	var paths []string
	for _, rt := range routeTable() {
		paths = append(paths, strings.TrimSuffix(rt.pattern, "{$}"))
	}
	s.send(w, http.StatusOK, map[string]any{"server": s.cfg.Version, "model": b.names[0], "routes": paths})
	return nil
}

// health answers from a snapshot: ok while the step loop reports, or there is nothing to do.
func (s *Server) health(b *backend, w *response, _ *http.Request) *api.Error {
	if err := s.checkState(b); err != nil {
		return err
	}
	st := b.Engine.Stats()
	if away, ok := b.Engine.(engine.MayBeAway); ok {
		if err := away.Err(); err != nil {
			return &api.Error{Status: http.StatusServiceUnavailable, Type: api.TypeUnavailable, Code: string(engine.CodeAway),
				Message: err.Error(), RetryAfter: time.Second}
		}
	}
	h := api.Health{Status: "ok", Waiting: st.Waiting, LastStepMS: -1}
	for _, slot := range st.Slots {
		if slot.Busy {
			h.SlotsBusy++
		} else {
			h.SlotsIdle++
		}
	}
	now := time.Now()
	if !st.LastStep.IsZero() {
		h.LastStepMS = max(now.Sub(st.LastStep).Milliseconds(), 0)
	}
	// An idle step loop need not report; it is late only measured from when work came.
	if since, busy := s.work.busy(); busy {
		if st.LastStep.After(since) {
			since = st.LastStep
		}
		if late := now.Sub(since); late > s.cfg.StallAfter {
			return &api.Error{Status: http.StatusServiceUnavailable, Type: api.TypeUnavailable, Code: "stalled", RetryAfter: 10 * time.Second,
				Message: "the step loop has not finished a step for " + late.Round(time.Millisecond).String() + " while requests run"}
		}
	}
	s.send(w, http.StatusOK, h)
	return nil
}

func (s *Server) metricsPage(_ *backend, w *response, r *http.Request) *api.Error {
	s.metrics.page.ServeHTTP(w, r)
	return nil
}

func (s *Server) models(b *backend, w *response, _ *http.Request) *api.Error {
	s.send(w, http.StatusOK, api.Models{Object: "list", Data: []api.Model{api.ModelOf(b.info, b.names, s.started.Unix())}})
	return nil
}

func (s *Server) model(b *backend, w *response, r *http.Request) *api.Error {
	id := r.PathValue("id")
	for _, name := range b.names {
		if name == id {
			s.send(w, http.StatusOK, api.ModelOf(b.info, b.names, s.started.Unix()))
			return nil
		}
	}
	return api.ModelNotFound(id, b.names)
}

func (s *Server) props(b *backend, w *response, _ *http.Request) *api.Error {
	p := api.PropsOf(b.info)
	p.ModelAlias, p.BuildInfo = b.names[0], s.cfg.Version
	if b.Template != nil {
		p.Template = b.Template.Source()
		sum := sha256.Sum256([]byte(p.Template))
		p.TemplateHash = hex.EncodeToString(sum[:])
	}
	if bos, ok := b.Tokenizer.BOS(); ok {
		p.BOS = strings.ToValidUTF8(string(b.Tokenizer.Piece(bos)), "\uFFFD")
	}
	s.send(w, http.StatusOK, p)
	return nil
}

func (s *Server) slots(b *backend, w *response, r *http.Request) *api.Error {
	slots := api.SlotsOf(b.Engine.Stats())
	if r.URL.Query().Get("fail_on_no_slot") == "1" {
		idle := false
		for _, slot := range slots {
			idle = idle || !slot.IsProcessing
		}
		if !idle {
			return &api.Error{Status: http.StatusServiceUnavailable, Type: api.TypeUnavailable, Code: "no_slot",
				Message: "no slot available", RetryAfter: time.Second}
		}
	}
	s.send(w, http.StatusOK, slots)
	return nil
}

func (s *Server) tokenize(b *backend, w *response, r *http.Request) *api.Error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	req, err := api.ParseTokenize(body)
	if err != nil {
		return err
	}
	s.send(w, http.StatusOK, req.Response(b.Tokenizer))
	return nil
}

func (s *Server) detokenize(b *backend, w *response, r *http.Request) *api.Error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	ids, err := api.ParseDetokenize(body, b.info.VocabSize)
	if err != nil {
		return err
	}
	s.send(w, http.StatusOK, api.Detokenize(ids, b.Tokenizer))
	return nil
}

func (s *Server) applyTemplate(b *backend, w *response, r *http.Request) *api.Error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	msgs, err := api.ParseTemplate(body, b.limits)
	if err != nil {
		return err
	}
	parts, err := b.render(msgs)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
	}
	s.send(w, http.StatusOK, api.TemplateResponse{Prompt: text.String()})
	return nil
}

// render makes the prompt of a conversation.
func (b *backend) render(m *api.Messages) ([]api.Part, *api.Error) {
	if b.Template == nil {
		return nil, &api.Error{Status: http.StatusNotImplemented, Type: api.TypeNotSupported, Code: "no_chat_template",
			Message: "messages: the model has no chat template: use /v1/completions"}
	}
	parts, err := b.Template.Render(m.JSON, m.Kwargs, m.AddGenerationPrompt)
	if err != nil {
		return nil, api.TemplateError(err)
	}
	if m.Continue != "" {
		parts = append(parts, api.Part{Text: m.Continue})
	}
	return parts, nil
}
