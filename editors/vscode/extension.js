// Starts `sandbox-kernel lsp`, and asks before a larger paste goes in. Triage, and no wall: nothing here runs code.
const os = require('os');
const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

const KIND = vscode.DocumentDropOrPasteEditKind.Text.append('sandboxKernelScreen');
const SECONDS = 2; // a server that takes longer holds up no paste: what it finds is shown when it is in
const LANGUAGES = [{ language: 'python' }, { language: 'shellscript' }];
let client;

async function reasons(text, language) {
  const asked = client.sendRequest('sandbox-kernel/screen', { text, language });
  const late = new Promise((resolve) => setTimeout(resolve, SECONDS * 1000, []));
  return Promise.race([asked, late]).catch(() => []);
}

async function provideDocumentPasteEdits(document, _ranges, data, _context, token) {
  const text = await data.get('text/plain')?.asString();
  const from = vscode.workspace.getConfiguration('sandboxKernelScreen').get('pasteFrom');
  if (!text || !from || text.length < from) return undefined;
  const found = await reasons(text, document.languageId);
  if (!found.length || token.isCancellationRequested) return undefined;
  const words = { modal: true, detail: found.join('\n') };
  const said = await vscode.window.showWarningMessage('Paste this? The screen finds:', words, 'Paste');
  return said === 'Paste' ? undefined : [new vscode.DocumentPasteEdit('', 'Not pasted', KIND)];
}

exports.activate = async (context) => {
  const [command, ...args] = vscode.workspace.getConfiguration('sandboxKernelScreen').get('command');
  const run = { command, args, options: { cwd: os.homedir() } }; // never a program of the workspace's
  const options = { documentSelector: LANGUAGES, notebookDocumentOptions: { filterCells: (_, cells) => cells } };
  client = new LanguageClient('sandboxKernelScreen', 'Sandbox kernel: screen', run, options);
  const pasted = { providedPasteEditKinds: [KIND], pasteMimeTypes: ['text/plain'] };
  const pastes = vscode.languages.registerDocumentPasteEditProvider(LANGUAGES, { provideDocumentPasteEdits }, pasted);
  context.subscriptions.push(pastes);
  await client.start();
};
exports.deactivate = () => client?.stop();
