package server

import (
	"net/http"
	"strconv"

	"baton/internal/api"
	"baton/internal/engine"
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
	var f engine.SlotFile
	var answer any
	if action == api.ActionSave {
		f, err = b.SlotFiles.SaveSlot(r.Context(), slot, name)
		answer = api.SavedOf(slot, name, f)
	} else {
		f, err = b.SlotFiles.RestoreSlot(r.Context(), slot, name)
		answer = api.RestoredOf(slot, name, f)
	}
	if err != nil {
		return api.FromEngine(err)
	}
	s.send(w, http.StatusOK, answer)
	return nil
}
