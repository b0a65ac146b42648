// LibreChat's own source, from a checkout that LIBRECHAT_SOURCE names: how it proves itself, and how it moves files.
// Run with NODE_PATH at the folder of node_modules: node librechat_source.cjs. Its TypeScript is taken out of its types.
const Module = require("module");
const fs = require("fs");
const path = require("path");
const { Readable } = require("stream");
const typescript = require("typescript");

const api = path.join(process.env.LIBRECHAT_SOURCE, "packages/api/src");
const parts = ["auth/codeapi", "utils/axios", "utils/code", "files/code/form", "files/code/identity"];
const load = Module._load;
Module._load = function (request, ...rest) {
  if (request === "@librechat/api") return Object.assign({}, ...parts.map((part) => require(path.join(api, `${part}.ts`))));
  if (request === "~/utils") return require(path.join(api, "utils/common.ts"));
  return load.call(this, request, ...rest);
};
Module._extensions[".ts"] = (module, file) => {
  const options = { module: "CommonJS", target: "ES2022", esModuleInterop: true };
  module._compile(typescript.transpileModule(fs.readFileSync(file, "utf8"), { compilerOptions: options }).outputText, file);
};

const crud = require(path.join(process.env.LIBRECHAT_SOURCE, "api/server/services/Files/Code/crud.js"));
const { getCodeApiAuthHeaders } = require("@librechat/api");
const req = { user: { id: "64b0c0ffee", role: "USER" } };
const identity = { kind: "user", id: req.user.id };

async function main() {
  const { createCodeExecutionTool } = await import(path.join(process.env.NODE_PATH, "@librechat/agents/dist/esm/main.mjs"));
  const said = { sends: Object.keys(await getCodeApiAuthHeaders(req)) };
  const names = ["plain.csv", "\u200emark.csv", "a b/(1).csv"];
  const files = names.map((filename) => ({ stream: Readable.from([filename]), filename }));
  const sent = await crud.batchUploadCodeEnvFiles({ req, files, ...identity });
  said.sent = sent.files.map((file) => file.filename);
  const one = await crud.uploadCodeEnvFile({ req, stream: Readable.from(["one"]), filename: "one.csv", ...identity });
  const owner = { kind: "user", resource_id: req.user.id };
  const refs = [
    { id: one.file_id, name: "one.csv", storage_session_id: one.storage_session_id, ...owner },
    ...sent.files.map((file) => ({ id: file.fileId, name: file.filename, storage_session_id: sent.storage_session_id, ...owner })),
  ];
  const tool = createCodeExecutionTool({ authHeaders: () => getCodeApiAuthHeaders(req), files: refs });
  const code = "import os\nprint(sorted(os.listdir()))\nopen(b'\\xb2\\xe2.csv', 'w').write('gbk')";
  const ran = await tool.invoke({ type: "tool_call", id: "1", name: tool.name, args: { lang: "py", code } });
  said.ran = ran.content;
  const made = ran.artifact.files.find((file) => file.name.includes("~") && file.name !== said.sent[1]);
  const response = await crud.getCodeOutputDownloadStream(`${made.storage_session_id}/${made.id}`, identity, req);
  said.made = [made.name, Buffer.concat(await response.data.toArray()).toString()];
  return said;
}
main().then((said) => console.log(JSON.stringify(said)), (error) => console.log(JSON.stringify({ error: String(error) }))).finally(() => process.exit());
