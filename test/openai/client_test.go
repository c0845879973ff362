package openai

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// foxQuestion is the user's message of the golden prompt "chat-story".
const foxQuestion = "Tell me a story about a fox."

// foxChat asks for at most as many tokens as the golden answer has.
func foxChat() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(foxQuestion)},
		Temperature:         openai.Float(0),
		MaxCompletionTokens: openai.Int(32),
	}
}

func TestModels(t *testing.T) {
	page, err := client(key).Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Data) != 1 || page.Data[0].ID == "" || page.Data[0].Object != "model" {
		t.Fatalf("models: %+v, want one with an id", page.Data)
	}
	m, err := client(key).Models.Get(t.Context(), page.Data[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != page.Data[0].ID {
		t.Errorf("model %q, want %q", m.ID, page.Data[0].ID)
	}
}

func TestChat(t *testing.T) {
	want := goldens(t)["chat-story"]
	got, err := client(key).Chat.Completions.New(t.Context(), foxChat())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Choices) != 1 {
		t.Fatalf("%d choices, want 1", len(got.Choices))
	}
	c := got.Choices[0]
	if c.Message.Role != "assistant" || c.Message.Content != want.Answer {
		t.Errorf("answer %q of %q, want %q of the assistant", c.Message.Content, c.Message.Role, want.Answer)
	}
	if c.FinishReason != "length" && c.FinishReason != "stop" {
		t.Errorf("finish reason %q", c.FinishReason)
	}
	u := got.Usage
	if u.PromptTokens != int64(len(want.Tokens)) || u.CompletionTokens < 1 || u.CompletionTokens > 32 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("usage %d + %d = %d, want a prompt of %d", u.PromptTokens, u.CompletionTokens, u.TotalTokens, len(want.Tokens))
	}
	if got.ID == "" || got.Object != "chat.completion" || got.Created == 0 || got.Model == "" {
		t.Errorf("id %q, object %q, created %d, model %q", got.ID, got.Object, got.Created, got.Model)
	}
}

func TestChatStream(t *testing.T) {
	want := goldens(t)["chat-story"]
	params := foxChat()
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client(key).Chat.Completions.NewStreaming(t.Context(), params)
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	usages, chunks := 0, 0
	for stream.Next() {
		chunk := stream.Current()
		chunks++
		if !acc.AddChunk(chunk) {
			t.Fatalf("chunk %d does not fit to those before it: %s", chunks, chunk.RawJSON())
		}
		if chunk.JSON.Usage.Valid() {
			usages++
			if len(chunk.Choices) != 0 {
				t.Errorf("the chunk with the usage has choices: %s", chunk.RawJSON())
			}
		} else if usages > 0 {
			t.Errorf("a chunk after the one with the usage: %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if usages != 1 || acc.Usage.PromptTokens != int64(len(want.Tokens)) {
		t.Errorf("%d usages, prompt of %d tokens; want 1 and %d", usages, acc.Usage.PromptTokens, len(want.Tokens))
	}
	if len(acc.Choices) != 1 || acc.Choices[0].Message.Content != want.Answer {
		t.Errorf("streamed %+v, want %q", acc.Choices, want.Answer)
	}
	if chunks < 4 {
		t.Errorf("the answer came in %d chunks: it was not streamed", chunks)
	}
}

func TestChatOptions(t *testing.T) {
	params := foxChat()
	params.N = openai.Int(2)
	params.Seed = openai.Int(7)
	params.Temperature = openai.Float(0.8)
	params.TopP = openai.Float(0.9)
	params.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"."}}
	params.Logprobs = openai.Bool(true)
	params.TopLogprobs = openai.Int(3)
	c := client(key)
	var texts []string
	for range 2 {
		got, err := c.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Choices) != 2 {
			t.Fatalf("%d choices, want 2", len(got.Choices))
		}
		for i, ch := range got.Choices {
			if ch.Index != int64(i) || strings.Contains(ch.Message.Content, ".") {
				t.Errorf("choice %d has index %d and the text %q, want none with the stop string", i, ch.Index, ch.Message.Content)
			}
			texts = append(texts, ch.Message.Content)
			if len(ch.Logprobs.Content) == 0 {
				t.Errorf("choice %d has no logprobs", i)
			}
			for _, lp := range ch.Logprobs.Content {
				if lp.Logprob > 0 || math.IsNaN(lp.Logprob) || len(lp.TopLogprobs) != 3 {
					t.Errorf("token %q: logprob %g with %d alternatives, want <= 0 and 3", lp.Token, lp.Logprob, len(lp.TopLogprobs))
				}
			}
		}
	}
	if texts[0] != texts[2] || texts[1] != texts[3] {
		t.Errorf("the same seed gave different texts: %q", texts)
	}
}

func TestCompletion(t *testing.T) {
	want := goldens(t)["story-1"]
	params := openai.CompletionNewParams{
		Prompt:      openai.CompletionNewParamsPromptUnion{OfString: openai.String(want.Prompt)},
		Temperature: openai.Float(0),
		MaxTokens:   openai.Int(32),
	}
	got, err := client(key).Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Choices) != 1 || got.Choices[0].Text != want.Answer {
		t.Errorf("completion %+v, want %q", got.Choices, want.Answer)
	}
	stream := client(key).Completions.NewStreaming(t.Context(), params)
	defer stream.Close()
	var b strings.Builder
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			b.WriteString(c.Text)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if b.String() != want.Answer {
		t.Errorf("streamed %q, want %q", b.String(), want.Answer)
	}
}

// Every refusal arrives as the client's typed error: status, message, type.
func TestErrors(t *testing.T) {
	chat := func(change func(*openai.ChatCompletionNewParams)) func(*testing.T, *openai.Client) error {
		return func(t *testing.T, c *openai.Client) error {
			p := foxChat()
			if change != nil {
				change(&p)
			}
			_, err := c.Chat.Completions.New(t.Context(), p)
			return err
		}
	}
	tests := []struct {
		name   string
		key    string
		do     func(*testing.T, *openai.Client) error
		status int
		says   []string // words that the message has to hold
	}{
		{"wrong key", "wrong", chat(nil), http.StatusUnauthorized, []string{"key"}},
		{"unknown model", key, chat(func(p *openai.ChatCompletionNewParams) { p.Model = "no-such-model" }), http.StatusNotFound, []string{"no-such-model"}},
		{"tools", key, chat(func(p *openai.ChatCompletionNewParams) {
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather"})}
		}), http.StatusBadRequest, []string{"tools"}},
		{"response format", key, chat(func(p *openai.ChatCompletionNewParams) {
			p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
		}), http.StatusBadRequest, []string{"response_format"}},
		{"bad temperature", key, chat(func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(-1) }), http.StatusBadRequest, []string{"temperature"}},
		{"bad top_p", key, chat(func(p *openai.ChatCompletionNewParams) { p.TopP = openai.Float(7) }), http.StatusBadRequest, []string{"top_p"}},
		{"no messages", key, chat(func(p *openai.ChatCompletionNewParams) { p.Messages = nil }), http.StatusBadRequest, []string{"messages"}},
		{"prompt longer than the context", key, chat(func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("The fox went down to the river. ", 2000))}
		}), http.StatusBadRequest, []string{"context"}},
		{"unknown model asked for", key, func(t *testing.T, c *openai.Client) error {
			_, err := c.Models.Get(t.Context(), "no-such-model")
			return err
		}, http.StatusNotFound, []string{"no-such-model"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.do(t, client(tt.key))
			var e *openai.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v of type %T, want the client's API error", err, err)
			}
			if e.StatusCode != tt.status || e.Message == "" || e.Type == "" {
				t.Errorf("status %d, type %q, message %q; want status %d with both", e.StatusCode, e.Type, e.Message, tt.status)
			}
			for _, w := range tt.says {
				if !strings.Contains(e.Message, w) {
					t.Errorf("message %q does not name %q", e.Message, w)
				}
			}
			// The server answers afterwards.
			if _, err := client(key).Chat.Completions.New(t.Context(), foxChat()); err != nil {
				t.Errorf("a good request after it: %v", err)
			}
		})
	}
}
