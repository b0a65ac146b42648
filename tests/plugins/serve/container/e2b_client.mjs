// E2B's client from npm through its methods, against the server that its variables name; prints what it saw.
// Run with the folder of node_modules as the current one: node --input-type=module < e2b_client.mjs
import dns from "node:dns";

// Names below localhost are this machine, as systemd's resolver has it: not every machine knows them.
const lookup = dns.lookup;
dns.lookup = (name, options, done) => lookup(name.endsWith(".localhost") ? "127.0.0.1" : name, options, done);

const { Sandbox, CommandExitError } = await import("@e2b/code-interpreter");
const said = {};
const refused = (promise) => promise.then(() => "nothing", (error) => [error.constructor.name, error.message]);
const kind = async (promise) => (await refused(promise))[0];
const text = (bytes) => new TextDecoder().decode(bytes);

const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { job: "a b" }, envs: { X: "1" } });
try {
  // cells
  const heard = [];
  const code = "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.environ['X'] + 'é'";
  const onStdout = (message) => heard.push(message.line);
  const execution = await box.runCode(code, { onStdout, onStderr: onStdout });
  said.cell = [execution.text, execution.logs.stdout, execution.logs.stderr, heard.sort()];
  said.error = (await box.runCode("1/0")).error.name;
  said.envs = (await box.runCode("os.environ['Q'] + os.getcwd()", { envs: { Q: "q" } })).text;
  said.late = await kind(box.runCode("import time; time.sleep(60)", { timeoutMs: 1000 }));
  const chart = await box.runCode("import matplotlib.pyplot as plt; plt.bar(['a'], [2]); plt.show()");
  said.chart = [chart.results[0].chart.type, typeof chart.results[0].png];

  // contexts
  const context = await box.createCodeContext({ cwd: "/home/user" });
  await box.runCode("y = 5", { context });
  said.context = [context.language, context.cwd, (await box.runCode("y", { context })).text];
  said.contexts = (await box.listCodeContexts()).map((one) => one.id === context.id);
  await box.restartCodeContext(context);
  said.restarted = (await box.runCode("y", { context })).error.name;
  await box.removeCodeContext(context);
  said.removed = await kind(box.runCode("1", { context }));

  // files
  said.written = (await box.files.write("d/a.txt", "text")).path;
  await box.files.write("b.bin", new Uint8Array([0, 1]).buffer);
  await box.files.write("s.bin", new Blob([new Uint8Array(3_000_000)]).stream());
  const many = [{ path: "m1", data: "1" }, { path: "m/2", data: "2" }];
  said.many = (await box.files.writeFiles(many)).map((one) => one.path);
  let streamed = 0;
  for await (const piece of await box.files.read("s.bin", { format: "stream" })) streamed += piece.length;
  const bytes = await box.files.read("b.bin", { format: "bytes" });
  const blob = await box.files.read("b.bin", { format: "blob" });
  said.read = [await box.files.read("d/a.txt"), [...bytes], blob.size, streamed];
  said.made = [await box.files.makeDir("f/g"), await box.files.makeDir("f/g")];
  said.moved = (await box.files.rename("d/a.txt", "f/b.txt")).path;
  said.listed = (await box.files.list("f")).map((one) => [one.path, one.type]);
  said.there = [await box.files.exists("f/b.txt"), await box.files.exists("d/a.txt")];
  const info = await box.files.getInfo("f/b.txt");
  said.info = [info.name, info.size, info.owner];
  await box.files.remove("f");
  said.gone = [await kind(box.files.read("f/b.txt")), await kind(box.files.write("../../etc/passwd", "x"))];
  said.events = await new Promise((resolve) => {
    const seen = new Set();
    const watching = box.files.watchDir("m", (event) => {
      seen.add(`${event.name} ${event.type}`);
      if (seen.has("new create") && seen.has("new write")) watching.then((one) => one.stop()).then(() => resolve(true));
    });
    watching.then(() => box.files.write("m/new", "1"));
  });

  // signed addresses
  const form = new FormData();
  form.append("file", new Blob(["signed"]), "ignored");
  const up = await fetch(await box.uploadUrl("s.txt", { useSignatureExpiration: 60_000 }), { method: "POST", body: form });
  const down = await fetch(await box.downloadUrl("s.txt"));
  said.signed = [up.status, await down.text()];

  // commands
  const done = await box.commands.run("echo hi; echo err >&2; echo $A; pwd", { envs: { A: "é" } });
  said.command = [done.stdout, done.stderr, done.exitCode];
  const failed = await box.commands.run("exit 3").catch((error) => error);
  said.failed = [failed instanceof CommandExitError, failed.exitCode];
  said.tooLong = await kind(box.commands.run("sleep 30", { timeoutMs: 1000 }));
  said.root = await refused(box.commands.run("true", { user: "root" }));
  const cat = await box.commands.run("cat", { background: true, stdin: true });
  said.running = (await box.commands.list()).some((one) => one.pid === cat.pid);
  await box.commands.sendStdin(cat.pid, "one\n");
  await box.commands.closeStdin(cat.pid);
  said.typed = (await cat.wait()).stdout;
  const sleeping = await box.commands.run("sleep 50", { background: true });
  said.killed = [await sleeping.kill(), await box.commands.kill(sleeping.pid)];
  const left = await box.commands.run("while ! test -e go; do sleep 0.05; done; echo end", { background: true });
  await left.disconnect();
  const again = await box.commands.connect(left.pid);
  await box.files.write("go", "");
  said.again = (await again.wait()).stdout;

  // a shell
  let shown = "";
  const shell = await box.pty.create({ rows: 24, cols: 80, onData: (data) => (shown += text(data)) });
  await box.pty.resize(shell.pid, { rows: 30, cols: 100 });
  await box.pty.sendInput(shell.pid, new TextEncoder().encode("stty size; exit\n"));
  await shell.wait();
  said.shell = shown.includes("30 100");
  const other = await box.pty.create({ rows: 24, cols: 80, onData: () => {} });
  said.ended = await box.pty.kill(other.pid);

  // its life
  const about = await box.getInfo();
  said.about = [about.sandboxId === box.sandboxId, about.metadata, about.templateId];
  said.metrics = (await box.getMetrics())[0].memTotal > 0;
  said.found = (await Sandbox.list({ query: { metadata: { job: "a b" } } }).nextItems()).length;
  await box.setTimeout(300_000);
  said.longer = (await box.getInfo()).endAt - about.endAt > 100_000;
  said.connected = (await (await Sandbox.connect(box.sandboxId)).runCode("40 + 2")).text;
  await box.runCode("kept = 43");
  said.paused = [await box.pause(), await box.isRunning(), (await (await box.connect()).runCode("kept")).text];
  said.copies = [await refused(box.createSnapshot()), await refused(box.fork()), await box.listSnapshots().nextItems()];
  said.network = await refused(box.updateNetwork({ allowOut: ["example.org"] }));
  said.internet = await refused(Sandbox.create({ allowInternetAccess: true }));
} finally {
  said.end = [await box.kill(), await box.kill(), await box.isRunning()];
}
console.log(JSON.stringify(said));
