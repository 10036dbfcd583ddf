// The official SDKs in Node. Started by test_node.py, which names the server in SERVER.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

// The packages are beside no source of ours: they are found where they were installed.
const require = createRequire(process.env.CLIENTS_NODE_MODULES + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const openaiModule = await load("openai");
const anthropicModule = await load("@anthropic-ai/sdk");
const OpenAI = openaiModule.OpenAI ?? openaiModule.default.OpenAI;
const Anthropic = anthropicModule.Anthropic ?? anthropicModule.default.Anthropic;

const server = process.env.SERVER;
const openai = new OpenAI({ baseURL: server + "/v1", apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: server, apiKey: "none", maxRetries: 0 });
const HELLO = "Grüße, 世界 😊!";
const user = (key) => [{ role: "user", content: "KEY:" + key }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", parameters: schema } }];

test("openai: chat, whole and streamed", async () => {
  const whole = await openai.chat.completions.create({ model: "tiny", messages: user("hello") });
  assert.equal(whole.choices[0].message.content, HELLO);
  const stream = openai.chat.completions.stream({ model: "tiny", messages: user("hello"), n: 3 });
  const final = await stream.finalChatCompletion();
  assert.deepEqual(final.choices.map((c) => c.message.content), [HELLO, HELLO, HELLO]);
});

test("openai: a tool loop of three turns", async () => {
  const messages = user("weather");
  const cities = [];
  let message;
  for (let turn = 0; turn < 5; ++turn) {
    const stream = openai.chat.completions.stream({ model: "tiny", messages, tools });
    message = (await stream.finalChatCompletion()).choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) break;
    for (const call of message.tool_calls) {
      cities.push(JSON.parse(call.function.arguments).city);
      messages.push({ role: "tool", tool_call_id: call.id, content: "rain" });
    }
  }
  assert.deepEqual(cities, ["Oslo", "Rome"]);
  assert.equal(message.content, "Rain in both.");
});

test("openai: Responses, whole and streamed", async () => {
  const whole = await openai.responses.create({ model: "tiny", input: "KEY:think" });
  assert.equal(whole.output_text, "Blue.");
  const stream = openai.responses.stream({ model: "tiny", input: "KEY:think" });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, "Blue.");
  assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message"]);
});

test("openai: errors", async () => {
  await assert.rejects(
    openai.chat.completions.create({ model: "tiny", messages: user("hello"), temperature: 9 }),
    (error) => error.status === 400 && error.code === "out_of_range",
  );
  const stream = await openai.chat.completions.create({
    model: "tiny",
    messages: user("fault"),
    stream: true,
  });
  await assert.rejects(async () => {
    for await (const _ of stream);
  });
});

test("anthropic: a message and a tool loop", async () => {
  const base = { model: "tiny", max_tokens: 500 };
  const whole = await anthropic.messages.create({ ...base, messages: user("hello") });
  assert.equal(whole.content[0].text, HELLO);
  const messages = user("weather");
  const inputs = [];
  let final;
  for (let turn = 0; turn < 5; ++turn) {
    const stream = anthropic.messages.stream({
      ...base,
      messages,
      tools: [{ name: "weather", input_schema: schema }],
    });
    final = await stream.finalMessage();
    messages.push({ role: "assistant", content: final.content });
    if (final.stop_reason !== "tool_use") break;
    const uses = final.content.filter((block) => block.type === "tool_use");
    inputs.push(...uses.map((block) => block.input.city));
    messages.push({
      role: "user",
      content: uses.map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "rain" })),
    });
  }
  assert.deepEqual(inputs, ["Oslo", "Rome"]);
  assert.equal(final.content.at(-1).text, "Rain in both.");
});

test("anthropic: thinking and errors", async () => {
  const base = { model: "tiny", max_tokens: 500 };
  const final = await anthropic.messages.stream({ ...base, messages: user("think") }).finalMessage();
  assert.deepEqual(final.content.map((block) => block.type), ["thinking", "text"]);
  await assert.rejects(
    anthropic.messages.create({ ...base, messages: [] }),
    (error) => error.status === 400,
  );
  await assert.rejects(anthropic.messages.stream({ ...base, messages: user("fault") }).finalMessage());
});
