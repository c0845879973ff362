package server

import (
	"context"
	"net/http"
	"strconv"

	"baton/internal/api"
)

// slotAction saves a slot's state, restores it or erases it, as llama-server does. What
// hands memory out or takes it in is no action of the API.
func (s *Server) slotAction(b *backend, w *response, r *http.Request) *api.Error {
	if b.SlotFiles == nil {
		return &api.Error{Status: http.StatusNotImplemented, Type: api.TypeNotSupported, Code: "not_supported",
			Message: "slot actions: not supported by a server without a directory for them: start it with --slot-save-path DIR"}
	}
	slot, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || slot < 0 || slot >= b.info.Slots {
		return &api.Error{Status: http.StatusBadRequest, Type: api.TypeInvalidRequest, Param: "id_slot", Code: api.CodeInvalidValue,
			Message: "id_slot: found " + clip(r.PathValue("id")) + ", expected 0 to " + strconv.Itoa(b.info.Slots-1)}
	}
	action := r.URL.Query().Get("action")
	if action == api.ActionErase {
		n, err := b.SlotFiles.EraseSlot(r.Context(), slot)
		if err != nil {
			return api.FromEngine(err)
		}
		s.send(w, http.StatusOK, &api.SlotErased{Slot: slot, Erased: n})
		return nil
	}
	if action != api.ActionSave && action != api.ActionRestore {
		return &api.Error{Status: http.StatusBadRequest, Type: api.TypeInvalidRequest, Param: "action", Code: api.CodeInvalidValue,
			Message: "action: found " + strconv.Quote(clip(action)) + ", expected save, restore or erase"}
	}
	body, bad := s.readBody(w, r)
	if bad != nil {
		return bad
	}
	name, bad := api.ParseSlotFile(body)
	if bad != nil {
		return bad
	}
	if action == api.ActionSave {
		return s.saveSlot(r.Context(), b, w, slot, name)
	}
	return s.restoreSlot(r.Context(), b, w, slot, name)
}

func (s *Server) saveSlot(ctx context.Context, b *backend, w *response, slot int, name string) *api.Error {
	f, err := b.SlotFiles.SaveSlot(ctx, slot, name)
	if err != nil {
		s.cfg.Logger.Warn("slot not saved", "slot", slot, "reason", err.Error())
		return api.FromEngine(err)
	}
	s.cfg.Logger.Info("slot saved", "slot", slot, "file", name, "tokens", f.Tokens, "bytes", f.Bytes, "ms", f.Took.Milliseconds())
	s.send(w, http.StatusOK, api.SavedOf(slot, name, f))
	return nil
}

func (s *Server) restoreSlot(ctx context.Context, b *backend, w *response, slot int, name string) *api.Error {
	f, err := b.SlotFiles.RestoreSlot(ctx, slot, name)
	if err != nil {
		s.cfg.Logger.Warn("slot not restored", "slot", slot, "reason", err.Error())
		return api.FromEngine(err)
	}
	if f.Warning != "" {
		s.cfg.Logger.Warn("slot restored from a file that is not verified", "slot", slot, "reason", f.Warning)
	}
	s.cfg.Logger.Info("slot restored", "slot", slot, "file", name, "tokens", f.Tokens, "bytes", f.Bytes, "verified", f.Verified, "ms", f.Took.Milliseconds())
	s.send(w, http.StatusOK, api.RestoredOf(slot, name, f))
	return nil
}
