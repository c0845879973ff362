package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"baton/internal/engine"
)

// Types of errors, as OpenAI and llama-server name them.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypePermission     = "permission_error"
	TypeNotFound       = "not_found_error"
	TypeServer         = "server_error"
	TypeNotSupported   = "not_supported_error"
	TypeUnavailable    = "unavailable_error"
	TypeContext        = "exceed_context_size_error"
)

// Codes of errors. OpenAI's clients expect a string here; llama-server puts the status.
const (
	CodeInvalidValue  = "invalid_value"
	CodeInvalidType   = "invalid_type"
	CodeInvalidJSON   = "invalid_json"
	CodeMissing       = "missing_required_parameter"
	CodeUnsupported   = "unsupported_parameter"
	CodeDuplicate     = "duplicate_parameter"
	CodeModelNotFound = "model_not_found"
	CodeContextLength = "context_length_exceeded"
	CodeTemplate      = "template_refused"
)

// Error is an answer that is not a result. Its JSON form is OpenAI's, with llama-server's
// n_prompt_tokens and n_ctx when the prompt is too long:
//
//	{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
type Error struct {
	Status     int // of the HTTP response
	Message    string
	Type       string
	Param      string        // path of the field at fault, such as "messages[0].role"; may be empty
	Code       string        // may be empty
	RetryAfter time.Duration // > 0: when to try again
	Prompt     int           // TypeContext: tokens in the prompt
	Ctx        int           // TypeContext: positions in a slot
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes the error as clients expect it.
func (e *Error) MarshalJSON() ([]byte, error) {
	body := struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
		Prompt  int     `json:"n_prompt_tokens,omitempty"`
		Ctx     int     `json:"n_ctx,omitempty"`
	}{Message: e.Message, Type: e.Type, Prompt: e.Prompt, Ctx: e.Ctx}
	if e.Param != "" {
		body.Param = &e.Param
	}
	if e.Code != "" {
		body.Code = &e.Code
	}
	return json.Marshal(map[string]any{"error": body})
}

// badRequest is a 400 about the field param.
func badRequest(param, code, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusBadRequest, Type: TypeInvalidRequest, Param: param, Code: code,
		Message: fmt.Sprintf(format, args...),
	}
}

// FromEngine turns an error of the engine into an answer.
func FromEngine(err error) *Error {
	e := engine.AsError(err)
	out := &Error{Message: e.Message, Param: e.Param, Code: string(e.Code)}
	switch e.Code {
	case engine.CodeBadRequest:
		out.Status, out.Type, out.Code = http.StatusBadRequest, TypeInvalidRequest, CodeInvalidValue
	case engine.CodeTooLong:
		out.Status, out.Type, out.Code = http.StatusBadRequest, TypeContext, CodeContextLength
		out.Prompt, out.Ctx = e.Prompt, e.Ctx
	case engine.CodeNoFile:
		out.Status, out.Type = http.StatusNotFound, TypeNotFound
	case engine.CodeSlotBusy:
		out.Status, out.Type, out.RetryAfter = http.StatusConflict, TypeUnavailable, time.Second
	case engine.CodeBadFile:
		out.Status, out.Type = http.StatusUnprocessableEntity, TypeInvalidRequest
	case engine.CodeNoRoom, engine.CodeStopping, engine.CodeAway:
		out.Status, out.Type, out.RetryAfter = http.StatusServiceUnavailable, TypeUnavailable, time.Second
	default:
		out.Status, out.Type = http.StatusInternalServerError, TypeServer
	}
	return out
}

// TemplateError is the answer when the model's chat template refuses the messages.
func TemplateError(err error) *Error {
	return badRequest("messages", CodeTemplate, "messages: the model's chat template refused them: %v", err)
}

// EmptyPrompt is the answer to a prompt that has no tokens.
func EmptyPrompt(param string) *Error {
	return badRequest(param, CodeInvalidValue, "%s: found a prompt without tokens, expected at least one", param)
}
