// A program over the client that is made of /openapi.json, as an application would write it: rest_client.ts URL KEY USER.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

declare const process: { argv: string[] };
const [url, key, user] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${key}` } });
const path = { user, session: "trips/porto" };
const said: components["schemas"]["ChatMessage"][] = [
  { role: "user", content: "I keep a green Brompton in Porto." },
  { role: "assistant", content: "Noted." },
];

function value<T>(answer: { data?: T; error?: { detail: string } }): T {
  if (answer.data === undefined) throw new Error(answer.error?.detail ?? "no data");
  return answer.data;
}

value(await client.PUT("/memoir/v1/users/{user}/sessions/{session}", { params: { path }, body: { task: "knowledge" } }));
const turns = "/memoir/v1/users/{user}/sessions/{session}/turns";
for (const again of [1, 2]) {
  const stored = value(await client.POST(turns, {
    params: { path, header: { "Idempotency-Key": "first" } },
    body: { messages: said },
  }));
  if (stored.to_turn !== 1) throw new Error(`${again}: ${JSON.stringify(stored)}`);
}

const compiled = value(await client.POST("/memoir/v1/users/{user}/sessions/{session}/compile", {
  params: { path },
  body: { query: "Where do I keep my bicycle?", budget: 4000 },
}));
const kept = value(await client.POST("/memoir/v1/users/{user}/memories", {
  params: { path: { user } },
  body: { content: "The Brompton is green", type: "fact", actor: "person" },
}));
// @ts-expect-error: an actor is a person, an agent or a tool
const wrong: components["schemas"]["RememberBody"] = { content: "x", actor: "robot" };
const refused = await client.POST("/memoir/v1/users/{user}/memories", { params: { path: { user } }, body: wrong });

const listed: components["schemas"]["Memory"][] = [];
for (let cursor: string | null | undefined; cursor !== null; ) {
  const page = value(await client.GET("/memoir/v1/users/{user}/memories", {
    params: { path: { user }, query: { limit: 1, ...(cursor ? { cursor } : {}) } },
  }));
  listed.push(...page.items);
  cursor = page.next;
}
const stranger = await client.GET("/memoir/v1/users/{user}/profile", { params: { path: { user: "somebody-else" } } });
console.log(JSON.stringify({
  tokens: compiled.tokens,
  memories: listed.map((memory) => memory.memory_id),
  kept: kept.memory_id,
  refused: refused.error?.detail,
  stranger: stranger.error?.status,
}));
