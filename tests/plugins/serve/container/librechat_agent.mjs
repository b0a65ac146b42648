// The tools of @librechat/agents as LibreChat makes them without a signing key, which is with no header of their own,
// against the server that LIBRECHAT_CODE_BASEURL names.
// Run with the folder of node_modules as the current one: node --input-type=module < librechat_agent.mjs
import * as agents from "@librechat/agents";
import * as lookedUp from "@langchain/core/tools";

const authHeaders = async () => ({});
const call = (tool, args, more) => tool.invoke({ type: "tool_call", id: "1", name: tool.name, args, ...more });
const said = {};

const code = agents.createCodeExecutionTool({ authHeaders });
const made = await call(code, { lang: "py", code: "print(6 * 7)\nopen('/mnt/data/a.csv', 'w').write('1,2')" });
said.made = [made.content, made.artifact];

const files = made.artifact.files.map((file) => ({ ...file, kind: "user", resource_id: file.id }));
const bash = agents.createBashExecutionTool({ authHeaders, files });
said.bash = (await call(bash, { command: "cat a.csv" })).content;
said.wrong = (await call(code, { lang: "py", code: "1/0" })).content;

const warm = { authHeaders, statefulSessions: true, runtimeSessionHint: "conversation", executionProfile: "stateful" };
const stateful = agents.createCodeExecutionTool(warm);
await call(stateful, { lang: "py", code: "open('/mnt/data/kept.txt', 'w').write('kept')" });
const again = await call(stateful, { lang: "bash", code: "cat kept.txt" });
said.again = [again.content, again.artifact.runtime_status];

const weather = lookedUp.tool(async ({ city }) => JSON.stringify({ city, degrees: city.length }), {
  name: "get-weather",
  description: "The weather of a city.",
  schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
});
const given = { toolMap: new Map([[weather.name, weather]]), toolDefs: [{ name: weather.name, allowed_callers: ["code_execution"] }] };
const config = { toolCall: { id: "2", name: "run_tools_with_code", args: {}, type: "tool_call", ...given } };
const python = agents.createProgrammaticToolCallingTool({ authHeaders });
const program = "found = await asyncio.gather(*[get_weather(city=city) for city in ('Oslo', 'Rome!')])\nprint(found)";
said.program = await python.func({ code: program }, undefined, config);
const shell = agents.createBashProgrammaticToolCallingTool({ authHeaders });
said.shell = await shell.func({ code: `echo "got $(get_weather '{"city": "Oslo"}')"` }, undefined, config);

process.env.LIBRECHAT_CODE_BASEURL = process.env.LIBRECHAT_CODE_BASEURL.replace(/librechat\/.*\/v1/, "librechat/v1");
const closed = agents.createCodeExecutionTool({ authHeaders });
said.closed = await call(closed, { lang: "py", code: "1" }).then((one) => one.content, (error) => error.message);
console.log(JSON.stringify(said));
