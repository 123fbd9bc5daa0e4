// Memory of pg_memoir for opencode: runs `pg-memoir agents hook EVENT`, which never fails a session.
// `pg-memoir agents install opencode` wrote this file, and `pg-memoir agents uninstall opencode` removes it.
import { spawn } from "node:child_process"

const command = COMMAND

function run(event, payload) {
  return new Promise((resolve) => {
    try {
      const options = { stdio: ["pipe", event === "stop" ? "ignore" : "pipe", "ignore"], detached: true }
      const child = spawn(command[0], command.slice(1).map((word) => (word === "EVENT" ? event : word)), options)
      let answer = ""
      const timer = setTimeout(() => resolve(""), 10_000)
      const end = (text) => (clearTimeout(timer), resolve(text))
      child.on("error", () => end(""))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(payload))
      if (event === "stop") {
        child.unref() // opencode may end before the turns are stored
        return child.stdin.on("close", () => end(""))
      }
      child.stdout.on("data", (data) => (answer += data))
      child.on("close", () => {
        try {
          end(JSON.parse(answer).context ?? "")
        } catch {
          end("")
        }
      })
    } catch {
      resolve("")
    }
  })
}

export const PgMemoir = async ({ client, directory }) => {
  const children = new Set() // sessions of sub-agents
  const list = async (id) => (await client.session.messages({ path: { id } })).data ?? []
  return {
    event: async ({ event }) => {
      const { info, sessionID } = event.properties ?? {}
      if (event.type === "session.created" && info?.parentID) children.add(info.id)
      if (event.type !== "session.idle" || children.has(sessionID)) return
      try {
        await run("stop", { session_id: sessionID, cwd: directory, messages: await list(sessionID) })
      } catch {}
    },
    "chat.message": async (input, output) => {
      if (children.has(input.sessionID)) return
      try {
        const before = (await list(input.sessionID)).filter((one) => one.info.id !== output.message.id)
        const added = before.flatMap((one) => one.parts).filter((part) => part.type === "text" && part.synthetic)
        const payload = {
          session_id: input.sessionID,
          cwd: directory,
          prompt: output.parts.filter((part) => part.type === "text" && !part.synthetic).map((p) => p.text).join("\n"),
          said: added.map((part) => part.text).join("\n"),
        }
        const start = before.length ? "" : await run("session-start", payload)
        const recall = await run("prompt", { ...payload, said: payload.said + start })
        const text = [start, recall].filter(Boolean).join("\n\n")
        const last = output.parts.at(-1)
        if (text && last) output.parts.push({ ...pick(last), id: `${last.id}m`, type: "text", text, synthetic: true })
      } catch {}
    },
  }
}

const pick = ({ messageID, sessionID }) => ({ messageID, sessionID })
