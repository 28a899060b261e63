// One client of Node's, by its name, asks a gateway for a stream; what it got is printed as JSON.
//
//     node clients.mjs NAME URL        NODE_PATH-less: run where `npm install` has put the packages

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , name, url] = process.argv;
const require = createRequire(process.cwd() + "/");
const load = (module) => import(pathToFileURL(require.resolve(module)));
const user = [{ role: "user", content: "Go." }];
const schema = { type: "object", properties: { path: { type: "string" } } };

async function anthropic() {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: `${url}/anthropic`, apiKey: "k", maxRetries: 0 });
  const asked = { model: "claude-opus-5", max_tokens: 300, messages: user };
  return [client, { ...asked, tools: [{ name: "Write", input_schema: schema }] }];
}

async function openai() {
  const { default: OpenAI } = await load("openai");
  return new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: "k", maxRetries: 0 });
}

const chat = {
  model: "gpt-5.4",
  messages: user,
  max_completion_tokens: 300,
  stream: true,
  tools: [{ type: "function", function: { name: "Write", parameters: schema } }],
};
const responses = {
  model: "gpt-5.4",
  input: "Go.",
  max_output_tokens: 300,
  stream: true,
  tools: [{ type: "function", name: "Write", parameters: schema, strict: false }],
};

async function genai() {
  const { GoogleGenAI } = await load("@google/genai");
  const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: `${url}/gemini` } });
  const declared = { name: "Write", parametersJsonSchema: schema };
  const config = { maxOutputTokens: 300, tools: [{ functionDeclarations: [declared] }] };
  return [client, "gemini-3.8-flash", config];
}

async function gathered(stream) {
  let text = "";
  const calls = [];
  for await (const chunk of stream) {
    for (const part of chunk.candidates?.[0]?.content?.parts ?? []) {
      text += part.thought ? "" : part.text ?? "";
      if (part.functionCall) calls.push([part.functionCall.name, part.functionCall.args]);
    }
  }
  return { text, calls };
}

async function vercel(model) {
  const { streamText, tool, jsonSchema } = await load("ai");
  const tools = { Write: tool({ description: "Write.", inputSchema: jsonSchema(schema) }) };
  const wrong = [];
  const onError = ({ error }) => wrong.push(String(error));
  const result = streamText({ model, prompt: "Go.", tools, maxOutputTokens: 300, onError, maxRetries: 0 });
  const text = await result.text;
  const calls = (await result.toolCalls).map((call) => [call.toolName, call.input]);
  return { text, calls, wrong };
}

const CLIENTS = {
  async "anthropic raw"() {
    const [client, asked] = await anthropic();
    let text = "", json = "", called = "";
    for await (const event of await client.messages.create({ ...asked, stream: true })) {
      if (event.content_block?.type === "tool_use") called = event.content_block.name;
      text += event.delta?.text ?? "";
      json += event.delta?.partial_json ?? "";
    }
    return { text, calls: [[called, JSON.parse(json)]] };
  },
  async "anthropic helper"() {
    const [client, asked] = await anthropic();
    const { content } = await client.messages.stream(asked).finalMessage();
    const text = content.filter((b) => b.type === "text").map((b) => b.text).join("");
    return { text, calls: content.filter((b) => b.type === "tool_use").map((b) => [b.name, b.input]) };
  },
  async "openai chat raw"() {
    let text = "", json = "", called = "";
    for await (const chunk of await (await openai()).chat.completions.create(chat)) {
      const delta = chunk.choices[0].delta; // as unguarded code has it
      text += delta.content ?? "";
      called = delta.tool_calls?.[0].function.name ?? called;
      json += delta.tool_calls?.[0].function.arguments ?? "";
    }
    return { text, calls: [[called, JSON.parse(json)]] };
  },
  async "openai chat helper"() {
    const stream = (await openai()).chat.completions.stream(chat);
    const { content, tool_calls } = (await stream.finalChatCompletion()).choices[0].message;
    const calls = tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
    return { text: content, calls };
  },
  async "openai responses raw"() {
    let last;
    for await (const event of await (await openai()).responses.create(responses)) last = event;
    return said(last.response);
  },
  async "openai responses helper"() {
    return said(await (await openai()).responses.stream(responses).finalResponse());
  },
  async "genai stream"() {
    const [client, model, config] = await genai();
    return gathered(await client.models.generateContentStream({ model, contents: "Go.", config }));
  },
  async "genai chat"() {
    const [client, model, config] = await genai();
    const talk = client.chats.create({ model, config });
    const told = await gathered(await talk.sendMessageStream({ message: "Go." }));
    return { ...told, kept: talk.getHistory(true).length };
  },
  async "ai anthropic"() {
    const { createAnthropic } = await load("@ai-sdk/anthropic");
    const provider = createAnthropic({ baseURL: `${url}/anthropic/v1`, apiKey: "k" });
    return vercel(provider("claude-opus-5"));
  },
  async "ai openai chat"() {
    const { createOpenAI } = await load("@ai-sdk/openai");
    return vercel(createOpenAI({ baseURL: `${url}/openai/v1`, apiKey: "k" }).chat("gpt-5.4"));
  },
  async "ai openai responses"() {
    const { createOpenAI } = await load("@ai-sdk/openai");
    return vercel(createOpenAI({ baseURL: `${url}/openai/v1`, apiKey: "k" }).responses("gpt-5.4"));
  },
  async "ai google"() {
    const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
    const provider = createGoogleGenerativeAI({ baseURL: `${url}/gemini/v1beta`, apiKey: "k" });
    return vercel(provider("gemini-3.8-flash"));
  },
};

function said({ output }) {
  const content = output.flatMap((item) => item.content ?? []);
  const calls = output.filter((item) => item.type === "function_call");
  const text = content.map((part) => part.text ?? "").join("");
  return { text, calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]) };
}

if (name === undefined) console.log(JSON.stringify(Object.keys(CLIENTS)));
else console.log(JSON.stringify(await CLIENTS[name]()));
