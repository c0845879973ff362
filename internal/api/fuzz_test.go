package api_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"baton/internal/api"
	"baton/internal/server/servertest"
)

// seed gives a fuzz target the hostile requests and some good ones.
func seed(f *testing.F, good ...string) {
	for _, c := range servertest.Hostile() {
		if len(c.Body) < 1000 {
			f.Add([]byte(c.Body))
		}
	}
	for _, s := range good {
		f.Add([]byte(s))
	}
}

// checked fails unless exactly one of a result and a complete error came back.
func checked(t *testing.T, body []byte, ok bool, err *api.Error) {
	if ok == (err != nil) {
		t.Fatalf("result %v and error %v", ok, err)
	}
	if err == nil {
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("accepted what is no JSON: %q", body)
		}
		return
	}
	if err.Status < 400 || err.Status > 499 || err.Message == "" || err.Type == "" || !utf8.ValidString(err.Message) {
		t.Fatalf("%+v", err)
	}
	if _, e := json.Marshal(err); e != nil {
		t.Fatal(e)
	}
}

func FuzzChatRequest(f *testing.F) {
	seed(f, `{"messages": [{"role": "user", "content": "hi"}], "stream": true}`,
		`{"messages": [{"role": "developer", "content": [{"type": "text", "text": "\ud83d\ude00"}]}, {"role": "assistant", "content": "x"}], "chat_template_kwargs": {"a": 1}}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := api.ParseChat(body, limits)
		checked(t, body, r != nil, err)
		if r != nil && !json.Valid(r.Messages.JSON) {
			t.Fatalf("messages %q", r.Messages.JSON)
		}
	})
}

func FuzzCompletionRequest(f *testing.F) {
	seed(f, `{"prompt": [[1, "a"], "b", {"prompt_string": "c"}], "n": 2, "logit_bias": {"5": -100, "ab": 1}, "stop": ["x"]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte, api.Limits) (*api.Request, *api.Error){api.ParseCompletion, api.ParseNative} {
			r, err := parse(body, limits)
			checked(t, body, r != nil, err)
			if r == nil {
				continue
			}
			for _, p := range r.Prompts {
				for _, id := range p.Encode(servertest.Tokenizer{}) {
					if id < 0 || id >= servertest.Vocab {
						t.Fatalf("id %d", id)
					}
				}
			}
		}
	})
}

func FuzzTokenRequests(f *testing.F) {
	seed(f, `{"content": "é", "with_pieces": true}`, `{"tokens": [1, 2, 255]}`, `{"messages": [{"role": "user", "content": "hi"}]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := api.ParseTokenize(body)
		checked(t, body, r != nil, err)
		ids, err := api.ParseDetokenize(body, servertest.Vocab)
		checked(t, body, ids != nil, err)
		m, err := api.ParseTemplate(body, limits)
		checked(t, body, m != nil, err)
	})
}

// FuzzFields: our way through an object finds what encoding/json finds.
func FuzzFields(f *testing.F) {
	seed(f, `{"chat_template_kwargs": {"a": [1, {"b": "}"}], "c" : -1.5e3 , "d\n": "\\\""}, "messages": [{"role": "user", "content": ""}]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := api.ParseTemplate(body, limits)
		if err != nil || m.Kwargs == nil {
			return
		}
		var got map[string]any
		var all map[string]json.RawMessage
		var kwargs map[string]any
		if json.Unmarshal(m.Kwargs, &got) != nil {
			t.Fatalf("kwargs %q", m.Kwargs)
		}
		if err := json.Unmarshal(body, &all); err != nil {
			t.Fatal(err)
		}
		if len(all["chat_template_kwargs"]) > 0 {
			if err := json.Unmarshal(all["chat_template_kwargs"], &kwargs); err != nil {
				t.Fatal(err)
			}
		}
		for k, v := range kwargs {
			if k == "enable_thinking" || k == "reasoning_effort" {
				continue
			}
			a, _ := json.Marshal(v)
			b, _ := json.Marshal(got[k])
			if !bytes.Equal(a, b) {
				t.Fatalf("%q: %s, want %s", k, b, a)
			}
		}
	})
}

func BenchmarkParseChat(b *testing.B) {
	body := []byte(`{"model": "fake", "messages": [{"role": "user", "content": "` + string(bytes.Repeat([]byte("word "), 2000)) + `"}], "temperature": 0.7, "stream": true}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := api.ParseChat(body, limits); err != nil {
			b.Fatal(err)
		}
	}
}
