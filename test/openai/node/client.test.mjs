// The served API seen by OpenAI's official JavaScript client.
//
//   BATON_URL=http://127.0.0.1:8080 BATON_KEY=... NPM_PREFIX=DIR node --test client.test.mjs
//
// NPM_PREFIX is the folder whose node_modules has the openai package. Without BATON_URL the tests skip.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";

const { BATON_URL, BATON_KEY, NPM_PREFIX } = process.env;
const skip = BATON_URL ? false : "BATON_URL is not set";
const OpenAI = BATON_URL && createRequire(NPM_PREFIX + "/")("openai");

const golden = Object.fromEntries(
  JSON.parse(readFileSync(new URL("../../../internal/demo/model/golden.json", import.meta.url))).prompts.map((p) => [p.name, p]),
);
const client = (apiKey = BATON_KEY) => new OpenAI({ baseURL: BATON_URL + "/v1", apiKey, maxRetries: 0, timeout: 60_000 });
const fox = { model: "", messages: [{ role: "user", content: "Tell me a story about a fox." }], temperature: 0, max_completion_tokens: 32 };

test("models", { skip }, async () => {
  const ids = [];
  for await (const m of client().models.list()) ids.push(m.id);
  assert.equal(ids.length, 1);
  assert.equal((await client().models.retrieve(ids[0])).id, ids[0]);
});

test("chat", { skip }, async () => {
  const want = golden["chat-story"];
  const got = await client().chat.completions.create(fox);
  assert.equal(got.choices.length, 1);
  assert.equal(got.choices[0].message.role, "assistant");
  assert.equal(got.choices[0].message.content, want.answer_text);
  assert.equal(got.usage.prompt_tokens, want.n_tokens);
  assert.equal(got.usage.total_tokens, got.usage.prompt_tokens + got.usage.completion_tokens);
});

test("chat, streamed, with usage", { skip }, async () => {
  const stream = await client().chat.completions.create({ ...fox, stream: true, stream_options: { include_usage: true } });
  let text = "", usage = null, chunks = 0;
  for await (const chunk of stream) {
    chunks++;
    assert.equal(usage, null, "nothing comes after the usage");
    text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.usage) {
      usage = chunk.usage;
      assert.deepEqual(chunk.choices, []);
    }
  }
  assert.equal(text, golden["chat-story"].answer_text);
  assert.equal(usage.prompt_tokens, golden["chat-story"].n_tokens);
  assert.ok(chunks > 3, `${chunks} chunks`);
});

test("chat, through the client's stream helper", { skip }, async () => {
  const runner = client().chat.completions.stream({ ...fox, stream: true });
  assert.equal(await runner.finalContent(), golden["chat-story"].answer_text);
});

test("chat, a stream that the client breaks off", { skip }, async () => {
  const stream = await client().chat.completions.create({ ...fox, max_completion_tokens: 1000, stream: true });
  for await (const _ of stream) break;
  assert.equal((await client().chat.completions.create(fox)).choices[0].message.content, golden["chat-story"].answer_text);
});

test("completion", { skip }, async () => {
  const want = golden["story-1"];
  const params = { model: "", prompt: want.prompt, temperature: 0, max_tokens: 32 };
  assert.equal((await client().completions.create(params)).choices[0].text, want.answer_text);
  let text = "";
  for await (const chunk of await client().completions.create({ ...params, stream: true })) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, want.answer_text);
});

const tool = { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } };
const long = [{ role: "user", content: "The fox went down to the river. ".repeat(2000) }];
for (const [name, change, status, kind, says, apiKey] of [
  ["wrong key", {}, 401, "AuthenticationError", /key/, "wrong"],
  ["unknown model", { model: "no-such-model" }, 404, "NotFoundError", /no-such-model/],
  ["tools", { tools: [tool] }, 400, "BadRequestError", /tools/],
  ["image", { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] }, 400, "BadRequestError", /image_url/],
  ["bad temperature", { temperature: -1 }, 400, "BadRequestError", /temperature/],
  ["text for a number", { max_completion_tokens: "many" }, 400, "BadRequestError", /max_completion_tokens/],
  ["prompt longer than the context", { messages: long }, 400, "BadRequestError", /context/],
]) {
  test(`error: ${name}`, { skip }, async () => {
    await assert.rejects(client(apiKey).chat.completions.create({ ...fox, ...change }), (e) => {
      assert.ok(e instanceof OpenAI[kind], `${e.constructor.name}, want ${kind}: ${e.message}`);
      assert.equal(e.status, status);
      assert.match(e.message, says);
      assert.ok(e.type, "the error has a type");
      return true;
    });
    assert.equal((await client().chat.completions.create(fox)).choices[0].message.content, golden["chat-story"].answer_text);
  });
}
