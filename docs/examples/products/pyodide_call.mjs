// Runs what stands on stdin by Pyodide, in Node.js or in Deno.
import { readFileSync } from "node:fs";
import { loadPyodide } from "pyodide";

const python = await loadPyodide();
python.runPython(readFileSync(0, "utf8"));
